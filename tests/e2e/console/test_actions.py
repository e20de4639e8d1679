"""What people do in the console, done in a browser against a real node."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from playwright.sync_api import Browser, Route

from tests.e2e.console.accessibility import axe_violations, low_contrast
from tests.e2e.console.live_data import BIG_NUMBER, ORDERS, base_url
from tests.e2e.console.window import Window, opened_window
from tests.e2e.running_node import RunningNode, running_node
from tests.ports import free_port

pytestmark = pytest.mark.slow


def test_messages_are_found_from_either_end_by_offset_and_by_search(window: Window) -> None:
    page = window.page
    window.open("/topics/orders")
    page.get_by_label("Partition", exact=True).select_option("0")
    page.get_by_label("From", exact=True).select_option("oldest")
    window.until("document.querySelector('table.messages tbody tr td:nth-child(4)')?.innerText === '0'")
    assert "start=oldest" in window.path
    page.get_by_label("From", exact=True).select_option("offset")
    page.get_by_label("Offset", exact=True).fill("5")
    page.get_by_label("Offset", exact=True).press("Enter")
    window.until("document.querySelector('table.messages tbody tr td:nth-child(4)')?.innerText === '5'")
    page.go_back()
    window.until("document.querySelector('table.messages tbody tr td:nth-child(4)')?.innerText === '0'")
    page.get_by_label("Partition", exact=True).select_option("")
    page.get_by_label("Search in key, value and headers").fill("order-17\n")
    window.until("document.querySelectorAll('table.messages tbody tr.message').length === 1")
    assert "order-17" in page.locator("table.messages tbody").inner_text()
    page.reload()
    window.until("document.querySelectorAll('table.messages tbody tr.message').length === 1")


def test_what_is_typed_stays_though_an_answer_comes_meanwhile(window: Window) -> None:
    page = window.page
    held: list[Route] = []
    page.route("**/messages?*offset*", lambda route: held.append(route))  # noqa: PLW0108 - it must take attributes
    window.open("/topics/orders?start=oldest&partition=0")
    window.until("document.querySelector('.card[aria-busy=false] table.messages tbody tr')")
    page.get_by_label("From", exact=True).select_option("offset")
    field = page.get_by_label("Offset", exact=True)
    field.fill("5")
    window.until("document.querySelector('.card[aria-busy=true]')")
    while not held:
        page.wait_for_timeout(20)
    held.pop().continue_()
    window.until("document.querySelector('.card[aria-busy=false] table.messages tbody tr')")
    assert field.input_value() == "5"


def test_a_message_opens_to_exact_json_headers_and_ways_to_get_it(window: Window) -> None:
    page = window.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    window.open("/topics/orders?start=oldest&search=order-1")
    page.locator("tr.message").first.click()
    page.locator("pre.value").wait_for()
    shown = json.loads(page.locator("pre.value").inner_text())
    assert shown["id"] > BIG_NUMBER
    assert shown["id"] % 2 == 1, "a digit was lost: a float cannot hold these numbers"
    assert "source" in page.locator(".opened").inner_text()
    page.get_by_role("button", name="As command").click()
    command = page.evaluate("navigator.clipboard.readText()")
    assert re.match(r"penstock consume orders -p \d --from \d+ -n 1 --format json --bootstrap 127", command)
    assert "open=" in window.path
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert json.loads(download.value.path().read_bytes())["id"] == shown["id"]


def test_a_shared_link_shows_its_message_among_newer_ones(window: Window) -> None:
    page = window.page
    window.open("/topics/orders?search=order-59&open=0-0")  # one that the list does not have
    page.locator("pre.value").wait_for()
    assert json.loads(page.locator("pre.value").inner_text())["id"] < BIG_NUMBER + 2 * ORDERS
    page.get_by_role("link", name="Messages around it").click()
    page.locator("tr.message.open").wait_for()
    assert page.locator("pre.value").count() == 1
    window.open("/topics/users?start=offset:500")
    window.see("Offset 500 is past the end")
    window.see("Partition 0 has offsets from 0 up to 20")
    window.open("/topics/orders?open=0-999999")
    window.see("has no message at offset 999999")
    window.forgive("status of 404")


def test_a_partition_without_a_committed_offset_leads_to_its_oldest_message(window: Window, node: RunningNode) -> None:
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "reports", "enable.auto.commit": False})
    consumer.subscribe(["empty-topic"])
    while not consumer.assignment():
        consumer.poll(0.2)
    window.open("/consumers/reports")
    window.page.get_by_role("link", name="empty-topic").first.click()
    window.until("location.search === '?partition=0&start=oldest'")
    window.see("No messages here")
    consumer.close()


def test_the_copied_command_prints_what_the_page_shows(window: Window, node: RunningNode) -> None:
    page = window.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    window.open("/topics/users?start=oldest")
    window.see("user-")
    page.get_by_role("button", name="Export").click()
    page.get_by_role("menuitem", name="Copy command").click()
    window.see("Copied.")
    command = page.evaluate("navigator.clipboard.readText()").split()
    printed = [json.loads(line) for line in node.ok(*command[1:]).splitlines()]
    assert [one["offset"] for one in printed] == [
        int(text) for text in page.locator("tr.message td:nth-child(4)").all_inner_texts()
    ]


def test_the_copied_program_reads_what_the_page_shows(window: Window) -> None:
    page = window.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    window.open("/topics/readings?start=oldest&partition=0")
    window.until("document.querySelectorAll('tr.message').length === 20")
    page.get_by_role("button", name="Export").click()
    page.get_by_role("menuitem", name="Copy program in Python").click()
    window.see("Copied.")
    program = page.evaluate("navigator.clipboard.readText()")
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True).stdout
    assert [line.split()[1] for line in printed.splitlines()] == page.locator("tr.message td:nth-child(4)").all_inner_texts()


def test_other_kinds_of_values_are_told_apart(window: Window) -> None:
    page = window.page
    window.open("/topics/readings")
    page.locator("tr.message").first.click()
    page.locator("pre.value", has_text="000000  00 ff").wait_for()
    window.open("/topics/notes")
    assert "всё хорошо" in page.locator("table.messages").inner_text()
    page.locator("tr.message", has_text="xxx").click()
    page.get_by_role("button", name="Show all").click()
    window.until("document.querySelector('pre.value').innerText.length === 20000")


def test_messages_are_shown_as_they_come_until_paused(window: Window, node: RunningNode) -> None:
    page = window.page
    window.open("/topics/notes")
    page.get_by_role("button", name="Live").click()
    window.see("Showing new messages live")
    producer = Producer({"bootstrap.servers": node.bootstrap})
    producer.produce("notes", "first of the living")
    producer.flush()
    window.see("first of the living")
    page.get_by_role("button", name="Pause").click()
    producer.produce("notes", "second of the living")
    producer.flush()
    window.see("Paused, 1 waiting")
    assert page.get_by_text("second of the living").count() == 0
    window.picture("light-live")
    page.get_by_role("button", name="Resume").click()
    window.see("second of the living")


def test_a_message_is_produced_and_read_back(window: Window, node: RunningNode) -> None:
    page = window.page
    window.open("/topics/users")
    page.get_by_role("button", name="Produce", exact=True).click()
    page.get_by_label("Key", exact=True).fill("by-hand")
    page.get_by_label("Value", exact=True).fill('{"from": "console"}')
    page.get_by_label("Headers", exact=True).fill("who: me\nwhy: to see")
    window.picture("light-write")
    page.get_by_role("dialog").get_by_role("button", name="Produce", exact=True).click()
    window.see("Stored at offset")
    window.see("by-hand")
    last = json.loads(node.ok("consume", "users", "--last", "1", "--format", "json"))
    assert (last["key"], last["value"]) == ("by-hand", '{"from": "console"}')
    assert {one["name"]: one["value"] for one in last["headers"]} == {"who": "me", "why": "to see"}


def test_a_topic_is_created_and_deleted_by_its_name(window: Window, node: RunningNode) -> None:
    page = window.page
    window.open("/topics")
    page.get_by_role("button", name="Create topic").click()
    page.get_by_label("Name", exact=True).fill("not/a/topic")
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_role("alert").wait_for()
    page.get_by_label("Name", exact=True).fill("made-here")
    page.get_by_label("Partitions", exact=True).fill("4")
    page.get_by_role("button", name="Create", exact=True).click()
    page.wait_for_url("**/topics/made-here")
    window.see("4 partitions")
    page.get_by_role("button", name="Actions").click()
    page.get_by_role("menuitem", name="Delete topic").click()
    window.see("This deletes 4 partitions with 0 messages")
    delete = page.get_by_role("button", name="Delete", exact=True)
    assert delete.is_disabled()
    page.get_by_label("Type made-here to confirm").fill("made-her")
    assert delete.is_disabled()
    page.get_by_label("Type made-here to confirm").fill("made-here")
    delete.click()
    page.wait_for_url("**/topics")
    assert "made-here" not in node.ok("topic", "list")
    window.forgive("status of 422")  # the name that was refused
    window.forgive("status of 404")  # the topic that is gone


def test_offsets_are_reset_only_after_a_preview(window: Window, node: RunningNode) -> None:
    page = window.page
    window.open("/consumers/stopped-group")
    window.see("No active members")
    page.get_by_role("button", name="Actions").click()
    page.get_by_role("menuitem", name="Reset offsets").click()
    window.see(f"{ORDERS // 2} messages")
    window.picture("light-reset")
    assert not all(one["position"] == 0 for one in positions(node))
    page.get_by_role("button", name="Reset 3 offsets").click()
    window.see("Offsets of stopped-group in orders were reset.")
    assert all(one["position"] == 0 for one in positions(node))


def positions(node: RunningNode) -> list[dict[str, int]]:
    """Where the group stands, by the command."""
    told = json.loads(node.ok("group", "describe", "stopped-group", "-o", "json"))
    found: list[dict[str, int]] = told["positions"] if isinstance(told, dict) else told[0]["positions"]
    return found


def test_a_running_group_is_not_reset(window: Window) -> None:
    window.open("/consumers/billing")
    window.see("billing-1")
    window.page.get_by_role("button", name="Actions").click()
    window.page.get_by_role("menuitem", name="Reset offsets").click()
    window.see("stop them first")
    assert window.page.get_by_role("button", name="Reset offsets", exact=True).is_disabled()
    window.forgive("status of 409")


def test_keys_lead_through_a_list(window: Window) -> None:
    page = window.page
    window.open("/topics")
    window.see("readings")
    page.keyboard.press("/")
    page.keyboard.type("s")
    window.until("location.search === '?search=s'")
    window.until("[...document.querySelectorAll('[data-row]')].every((row) => row.innerText.includes('s'))")
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.innerText") == "orders"
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics/orders")
    page.go_back()
    window.see("readings")
    page.keyboard.press("/")
    window.until("document.activeElement.matches('[data-search]')")
    page.keyboard.press("Escape")
    window.until("location.search === '' && document.querySelectorAll('[data-row]').length === 8")
    page.keyboard.press("Escape")
    window.until("document.activeElement.id === 'main'")
    page.keyboard.press("?")
    window.see("go to a page, topic or consumer group")
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.keyboard.type("stopped")
    window.until("document.querySelector('.palette')?.innerText.trim().endsWith('stopped-group')")
    window.until("document.querySelectorAll('.palette li').length === 1")
    page.keyboard.press("Enter")
    page.wait_for_url("**/consumers/stopped-group")
    page.get_by_role("button", name="Actions").click()
    page.get_by_role("menuitem", name="Delete group").click()
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.innerText") == "Actions"
    page.set_viewport_size({"width": 1024, "height": 700})
    for path in ("/consumers", "/topics", "/queues"):  # the name is what must not be cut
        window.open(path)
        window.until("document.querySelector('[data-row]')?.closest('td').clientWidth > 150")
    window.open("/nowhere")
    window.see("There is no such page")
    window.forgive("status of 404")


def test_order_is_in_the_address_and_goes_back(window: Window) -> None:
    page = window.page
    window.open("/consumers/billing")
    page.get_by_role("button", name="Partition", exact=True).click()
    window.until("location.search === '?sort=partition&order=desc'")
    window.until("document.querySelector('td:nth-child(2)').innerText === '2'")
    page.reload()
    window.until("document.querySelector('td:nth-child(2)')?.innerText === '2'")
    assert page.locator("th[aria-sort=descending]").inner_text() == "Partition"
    page.go_back()
    window.until("location.search === '' && document.querySelector('td:nth-child(2)')?.innerText === '0'")


def test_a_consumer_is_registered_trimming_is_set_and_it_is_unregistered(window: Window) -> None:
    page = window.page
    window.open("/queues/users")
    page.get_by_role("button", name="Register…").click()
    page.get_by_role("button", name="Register", exact=True).click()
    window.see("Enter a consumer")
    page.get_by_label("Consumer", exact=True).fill("billing")
    page.get_by_role("button", name="Register", exact=True).click()
    window.see("penstock://groups/billing")
    page.get_by_role("button", name="Change…").click()
    page.get_by_label("Trim messages that all vital consumers have read").check()
    page.get_by_label("Rows to retain").fill("7")
    page.get_by_role("button", name="Save", exact=True).click()
    window.see("the last 7 rows")
    page.get_by_role("button", name="Unregister penstock://groups/billing").click()
    window.see("messages it has not read may be trimmed")
    page.get_by_role("button", name="Unregister", exact=True).click()
    window.see("No consumer is registered")


def test_a_scrub_asks_first_and_says_what_it_reads(window: Window) -> None:
    window.open("/storage")
    window.page.get_by_role("button", name="Scrub now").click()
    window.see("This reads all 8 VDisks")
    window.page.keyboard.press("Escape")
    assert window.page.locator("dialog").count() == 0
    window.page.get_by_role("button", name="Scrub now").click()
    window.page.get_by_role("button", name="Start scrub").click()
    window.see("The scrub has started.")


def test_a_lost_disk_is_drawn_where_it_was(browser: Browser, tmp_path: Path) -> None:
    argv = ["--data-dir", str(tmp_path / "data"), "--erasure", "block-4-2"]
    with running_node(tmp_path / "log", argv) as node:
        node.ok("produce", "kept", "safe")
        node.stop()
    shutil.rmtree(tmp_path / "data" / "disk3")
    (tmp_path / "data" / "disk3").write_text("not a disk")
    with running_node(tmp_path / "log", [*argv, "--http-port", "0"]) as node, opened_window(browser, base_url(node)) as window:
        window.open("/storage")
        window.see("everything can still be read and written")
        domain = window.page.get_by_role("region", name="Fail domain 3")
        assert "out" in domain.inner_text()
        assert window.page.get_by_text("serving").count() == 7
        assert not low_contrast(window.page)
        window.picture("light-degraded")


def test_a_node_that_is_gone_is_told_in_place(browser: Browser, tmp_path: Path) -> None:
    argv = ["--data-dir", str(tmp_path / "data"), "--http-port", str(free_port())]
    with running_node(tmp_path / "log", argv) as node, opened_window(browser, base_url(node)) as window:
        node.ok("topic", "create", "still-shown")
        window.open("/topics")
        window.see("still-shown")
        node.kill()
        window.see("The node does not answer")
        assert window.page.get_by_text("still-shown").count() == 1, "what was shown stays"
        window.picture("light-node-gone")
        window.page.get_by_role("link", name="Storage", exact=True).click()
        window.see("The page could not be loaded")
        with running_node(tmp_path / "log", argv):
            window.see("Storage groups and their VDisks.")
        window.forgive("ERR_")
        window.forgive("dynamically imported module")


def test_messages_are_filtered_by_fields_shown_in_columns_and_exported(window: Window) -> None:
    page = window.page
    window.open("/topics/orders?start=oldest")
    page.get_by_role("button", name="Filters").click()
    page.get_by_label("Filter", exact=True).fill("value.customer = anna and value.total < 10")
    page.keyboard.press("Enter")
    window.until("new URLSearchParams(location.search).get('filter') !== null")
    page.get_by_label("Columns").fill("value.customer, value.total, header.source")
    page.keyboard.press("Enter")
    page.get_by_role("columnheader", name="value.total").wait_for()
    window.until("document.querySelectorAll('tr.message').length === 4")  # orders 0, 2, 4 and 6
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as csv:
        page.get_by_role("menuitem", name="Export as CSV").click()
    lines = csv.value.path().read_text().splitlines()
    assert lines[0] == "partition,offset,time,key,value.customer,value.total,header.source"
    assert sorted(line.split(",")[3:] for line in lines[1:]) == [
        [f"order-{number}", "anna", f"{number * 1.5:g}", "web"] for number in (0, 2, 4, 6)
    ]
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as exported:
        page.get_by_role("menuitem", name="Export as JSON lines").click()
    first = json.loads(exported.value.path().read_text().splitlines()[0])
    assert first["headers"] == {"source": "web", "number": "7"}
    page.get_by_label("Filter", exact=True).fill("total > 5")
    page.keyboard.press("Enter")
    window.see("unknown field 'total'")
    window.forgive("status of 400")


def test_a_message_is_compared_with_earlier_ones_of_its_key(window: Window, node: RunningNode) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for key, paid in (('a "b"', False), ("other", False), ('a "b"', True), ("other", True), ('a "b"', True)):
        producer.produce("prices", json.dumps({"total": 7, "paid": paid}), key=key)
        assert producer.flush(30) == 0
    page = window.page
    window.open("/topics/prices?open=0-2")
    page.get_by_role("button", name="Compare").click()
    changes = page.get_by_role("region", name="Changes from offset 0 to 2")
    changes.wait_for()
    assert [line.strip() for line in changes.locator(".added").all_inner_texts()] == ['+   "paid": true']
    assert [line.strip() for line in changes.locator(".removed").all_inner_texts()] == ['-   "paid": false']
    window.picture("light-compared")
    assert axe_violations(page) == []
    page.get_by_role("button", name="Compare with an older one").click()
    window.see("No earlier message of this key in the partition before that")


def test_a_message_is_copied_to_another_topic(window: Window, node: RunningNode) -> None:
    page = window.page
    node.ok("topic", "create", "copies")
    window.open("/topics/orders?partition=0&start=offset:0&limit=50")
    page.locator("tr.message").first.click()
    page.get_by_role("button", name="Resend").click()
    page.get_by_label("Topic", exact=True).fill("copies")
    page.get_by_role("dialog").get_by_role("button", name="Produce", exact=True).click()
    window.see("Stored at offset 0 of partition 0")
    (key, value, headers) = node.ok("consume", "copies", "-f", r"%k\n%s\n%h").split("\n", 2)
    assert key.startswith("order-")
    assert value == node.ok("consume", "orders", "-p", "0", "--from", "0", "-n", "1").rstrip("\n")
    assert headers == "source=web,number=7"
