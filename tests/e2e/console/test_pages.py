"""Every page with live data: what it shows, in both themes and on a phone; names, contrast and keyboard; pictures are kept."""

from __future__ import annotations

import re
import time

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Browser, Route

from tests.e2e.console.accessibility import (
    axe_violations,
    layout_shift,
    low_contrast,
    unnamed_controls,
    unreached_by_keyboard,
)
from tests.e2e.console.live_data import base_url
from tests.e2e.console.window import DESK, PHONE, Theme, Window, opened_window
from tests.e2e.running_node import RunningNode

pytestmark = pytest.mark.slow

SHIFT_MAX = 0.1  # what browsers' makers call good

# Path, a text that only live data brings, name of the picture.
PAGES = [
    ("/", "produced", "overview"),
    ("/topics", "readings", "topics"),
    ("/topics/orders", "order-", "messages"),
    ("/topics/orders/partitions", "serving", "partitions"),
    ("/topics/orders/consumers", "stopped-group", "topic-consumers"),
    ("/topics/orders/queue", "No consumer is registered", "topic-queue"),
    ("/topics/orders/config", "cleanup.policy", "configuration"),
    ("/topics/orders/metrics", "produced", "metrics"),
    ("/consumers", "billing", "consumers"),
    ("/consumers/billing", "billing-1", "consumer"),
    ("/queues", "orders", "queues"),
    ("/queues/tmp.events", "penstock://tmp/reader", "queue"),
    ("/consumers/%2F%2Ftmp%2Freader", "vital", "yt-consumer"),
    ("/streams", "sensors.kitchen", "streams"),
    ("/streams/sensors.kitchen", "mobile", "stream"),
    ("/pipelines", "orders-to-lake", "pipelines"),
    ("/pipelines/orders-to-lake", "row 17 is not JSON", "pipeline"),
    ("/schemas", "invoices-value", "schemas"),
    ("/schemas/invoices-value", "that messages match their schema", "schema"),
    ("/schemas/invoices-value?against=1", '"paid"', "schema-changes"),
    ("/topics/invoices?open=0-0", "Raw bytes", "decoded-message"),
    ("/storage", "Fail domain 7", "storage"),
    ("/nodes", "This node is alone", "nodes"),
    ("/security", "Everyone may do everything", "security"),
    ("/settings", "data_dir", "settings"),
]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_shows_live_data_and_can_be_read(browser: Browser, node: RunningNode, theme: Theme) -> None:
    unnamed: dict[str, list[str]] = {}
    pale: dict[str, list[object]] = {}
    jumps: dict[str, float] = {}
    against: dict[str, list[str]] = {}
    with opened_window(browser, base_url(node), theme=theme) as window:
        for path, text, name in PAGES:
            window.open(path)
            window.see(text)
            assert window.page.evaluate("document.documentElement.dataset.theme") == theme
            window.picture(f"{theme}-{name}")
            if (moved := layout_shift(window.page)) > SHIFT_MAX:
                jumps[path] = moved
            if found := unnamed_controls(window.page):
                unnamed[path] = found
            if dim := low_contrast(window.page):
                pale[path] = dim
            if theme == "light" and (violations := axe_violations(window.page)):  # it does not look at colours
                against[path] = violations
    assert not against, "what axe finds"
    assert not jumps, "pages that jump while they load"
    assert not unnamed, "controls without a name"
    assert not pale, "text with too little contrast"


def test_every_page_fits_on_a_phone(browser: Browser, node: RunningNode) -> None:
    wide: dict[str, int] = {}
    with opened_window(browser, base_url(node), size=PHONE, theme="dark") as window:
        for path, text, name in PAGES:
            window.open(path)
            window.page.get_by_text(text).first.wait_for(state="attached")
            window.picture(f"phone-{name}")
            over = window.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            if over > 0:
                wide[path] = over
        window.page.get_by_role("button", name="Menu").click()
        window.page.get_by_role("link", name="Storage").click()
        window.see("Fail domain 0")
    assert not wide, "pages that are wider than a phone"


@pytest.mark.parametrize(
    ("path", "text"),
    [("/topics", "readings"), ("/topics/notes", "plain words"), ("/storage", "Fail domain 7"), ("/", "produced")],
)
def test_tab_comes_to_every_control_and_shows_where_it_is(window: Window, path: str, text: str) -> None:
    window.open(path)
    window.see(text)
    missed, hidden = unreached_by_keyboard(window.page)
    assert not missed
    assert hidden == 0


def test_the_checks_find_what_is_wrong(window: Window) -> None:
    window.open("/topics")
    window.see("readings")
    window.page.evaluate(
        """() => document.querySelector('main').insertAdjacentHTML('beforeend',
        '<button id="nameless"></button><p id="pale">pale</p><button tabindex="-1">lost</button>')"""
    )
    window.page.evaluate("() => { document.getElementById('pale').style.color = 'rgb(200, 200, 200)'; }")
    assert len(unnamed_controls(window.page)) == 1
    assert [text for text, _ in low_contrast(window.page)] == ["pale"]
    missed, _ = unreached_by_keyboard(window.page)
    assert len(missed) == 1
    assert "lost" in missed[0]


def test_the_overview_shows_how_messages_flow(window: Window) -> None:
    window.open("/")
    flow = window.page.get_by_role("region", name="Flow")
    flow.get_by_role("list", name="Busiest topics").get_by_role("link", name="orders").wait_for()
    flow.locator("path.active").nth(1).wait_for(state="attached")  # producers to orders, and orders to a group that reads it
    flow.get_by_role("list", name="Their consumer groups").get_by_role("link", name="billing").click()
    window.until("location.pathname === '/consumers/billing'")


def deployed(route: Route) -> None:
    """Answers with what the runner reports, and a deployment as the node tells of one that it keeps running."""
    report = route.fetch().json()
    deployment = {
        "state": "running",
        "wanted": "running",
        "since_ms": report["started_ms"],
        "restarts": 0,
        "last_error": None,
        "retry_ms": None,
        "pid": 4172,
        "version": 2,
        "deployed_ms": report["started_ms"],
        "deployed_by": "User:ANONYMOUS",
        "application": "",
        "master": None,
        "conf": [],
        "file": "orders.yaml",
        "directory": "/srv/pipelines",
        "source_topics": ["orders"],
        "target_topic": None,
        "dead_letter_topic": "notes",
        "dead_letter_messages": 3,
    }
    route.fulfill(json={**report, "last_error": None, "deployment": deployment})


class Replay:
    """Answers as a node that replays dead letters once it is asked to, until the test says that it is done."""

    def __init__(self) -> None:
        self.state = "none"
        self.is_done = False

    def answer(self, route: Route) -> None:
        """Start it, or tell how far it is."""
        if route.request.method == "POST" or self.state == "running":
            self.state = "done" if self.is_done else "running"
        sent = {"none": 0, "running": 4000, "done": 12_000}[self.state]
        now_ms = time.time_ns() // 1_000_000
        told = {"state": self.state, "replayed": sent, "total": 12_000 if sent else 0, "error": None}
        route.fulfill(json={**told, "started_ms": now_ms, "ended_ms": now_ms + 5000 if self.state == "done" else None})


def test_a_deployed_pipeline_leads_to_its_topics_table_and_dead_letters(window: Window, node: RunningNode) -> None:
    origin = {"penstock.topic": "orders", "penstock.partition": "0", "penstock.offset": "0", "penstock.reason": "not JSON: row 0"}
    producer = Producer({"bootstrap.servers": node.bootstrap})
    producer.produce("notes", "not quite JSON", headers=[(name, value.encode()) for name, value in origin.items()])
    assert producer.flush(30) == 0
    page = window.page
    page.route("**/api/v1/pipelines/orders-to-lake", deployed)
    page.route(
        "**/api/v1/pipelines/orders-to-lake/files", lambda route: route.fulfill(json={"files": {"orders.yaml": "kind: export"}})
    )
    page.route(
        "**/api/v1/pipelines/orders-to-lake/log*", lambda route: route.fulfill(json={"text": "batch 12", "next_offset": 8})
    )
    replay = Replay()
    page.route("**/api/v1/pipelines/orders-to-lake/dead-letters/replay", replay.answer)
    window.open("/pipelines/orders-to-lake")
    way = page.get_by_role("group", name="From source to target")
    way.get_by_text("delta table ./lake/orders").wait_for()
    assert way.get_by_role("link", name="orders", exact=True).get_attribute("href") == "/topics/orders"
    assert way.get_by_role("link", name="notes").get_attribute("href") == "/topics/notes"
    window.see("not JSON: row 0")
    assert "dropped: 3 late" in page.locator(".tile", has_text="Rows written").inner_text()
    page.get_by_role("button", name="Replay").click()
    page.get_by_role("dialog").get_by_role("button", name="Replay").click()
    window.see("4,000 of 12,000 dead letters sent back")
    assert axe_violations(page) == []
    window.picture("light-deployed")
    replay.is_done = True
    window.see("12,000 dead letters sent back just now")
    page.get_by_role("button", name="Replay").wait_for()
    page.get_by_role("button", name="Stop").click()
    window.see("stops after its current batch")
    page.keyboard.press("Escape")
    page.get_by_role("link", name="orders, partition 0, offset 0").click()
    page.locator("pre.value").wait_for()
    assert "open=0-0" in window.path


def test_charts_draw_what_was_measured(window: Window) -> None:
    window.open("/")
    chart = window.page.get_by_role("region", name="Throughput")
    chart.get_by_text("produced").wait_for()
    chart.locator("canvas").wait_for()
    drawn = (
        "() => [...document.querySelector('canvas').getContext('2d').getImageData(0, 0, 200, 100).data].some((value) => value)"
    )
    window.page.wait_for_function(drawn)
    told = chart.get_by_role("img").get_attribute("aria-label")
    assert told is not None
    assert "last 10 min" in told
    window.page.get_by_role("button", name="1 h", exact=True).click()
    window.until("location.search === '?range=1h'")


def test_a_chart_tells_the_time_and_values_under_the_pointer(window: Window) -> None:
    page = window.page
    window.open("/")
    chart = page.get_by_role("region", name="Throughput")
    chart.locator("canvas").wait_for()
    assert chart.locator("time").count() == 0
    # What is above may still grow, and the chart is drawn again when a line is added: the pointer moves until it is noticed.
    for step in range(60):
        chart.scroll_into_view_if_needed()
        plot = chart.locator(".u-over").bounding_box()
        if plot is not None:  # the newest points are at the right
            page.mouse.move(plot["x"] + plot["width"] - 3 - step % 4, plot["y"] + plot["height"] / 2)
        if chart.locator("time").count():
            break
        page.wait_for_timeout(250)
    assert re.fullmatch(r"\d\d:\d\d:\d\d", chart.locator("time").inner_text())
    assert "/s" in chart.locator(".chart-key").inner_text()
    window.picture("light-hover")
    page.mouse.move(5, 5)
    chart.locator("time").wait_for(state="detached")


def test_a_chosen_theme_is_remembered(window: Window) -> None:
    window.open("/topics")
    window.page.get_by_role("button", name="Dark").click()
    assert window.page.evaluate("document.documentElement.dataset.theme") == "dark"
    window.page.reload()
    window.see("readings")
    assert window.page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert window.page.get_by_role("button", name="Dark").get_attribute("aria-pressed") == "true"


def test_the_space_of_the_disks_is_explained(window: Window) -> None:
    window.open("/storage")
    card = window.page.get_by_role("region", name="What the space is used for")
    card.get_by_text("as topics show them").wait_for()
    exact = "(box, figures) => [...box.querySelectorAll(figures)].map((figure) => parseInt(figure.title.replace(/\\D/g, '')))"
    (messages, beside, garbage), disks = card.evaluate(
        f"(card) => {{ const exact = {exact}; "
        "return [exact(card, '.num'), exact(document, \".vdisk-facts [title^='bytes of its files'] .num\")]; }"
    )
    used = sum(disks)
    assert messages + beside + garbage == used
    assert messages > 0


def test_what_is_not_there_says_what_to_do(window: Window, node: RunningNode) -> None:
    window.open("/topics/nowhere")
    window.see("There is no such topic")
    window.see(f"penstock topic create nowhere --bootstrap {node.bootstrap}")
    window.open("/topics/empty-topic")
    window.see(f"echo hello | penstock produce empty-topic --bootstrap {node.bootstrap}")
    window.open("/topics/orders/queue")
    window.see(f"penstock queue register orders my-group --vital --http {window.base}")
    window.open("/consumers/absent")
    window.see("There is no such consumer group")
    window.forgive("status of 404")


def test_figures_are_refreshed_without_losing_the_place(browser: Browser, node: RunningNode) -> None:
    with opened_window(browser, base_url(node), size=(DESK[0], 500)) as window:
        window.open("/topics/orders?limit=200")
        window.see("order-")
        count = window.page.locator(".page-head p .num").first
        before = count.inner_text()
        window.page.evaluate("scrollTo(0, 400)")
        window.page.wait_for_function("(before) => document.querySelector('.page-head p .num').innerText !== before", arg=before)
        assert window.page.evaluate("scrollY") == 400
