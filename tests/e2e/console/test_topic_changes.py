"""Topics changed in the console: the editor of settings, clones, several topics at once, the partition map, and quotas."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Browser

from tests.e2e.console.accessibility import axe_violations, low_contrast, unnamed_controls
from tests.e2e.console.live_data import base_url
from tests.e2e.console.window import PHONE, Window, opened_window
from tests.e2e.running_node import RunningNode

pytestmark = pytest.mark.slow


def described(node: RunningNode, topic: str) -> dict[str, str]:
    """The settings of a topic that differ from the defaults, as a Kafka client reads them."""
    shown = json.loads(node.ok("topic", "describe", topic, "-o", "json"))
    topics = shown if isinstance(shown, list) else [shown]
    config: dict[str, str] = topics[0]["config"]
    return config


def test_settings_are_edited_in_units_reviewed_and_applied_together(window: Window, node: RunningNode) -> None:
    page = window.page
    node.ok("topic", "create", "edited", "--config", "retention.bytes=1GiB")
    window.open("/topics/edited/config")
    retention = page.get_by_label("retention.ms", exact=True)
    assert retention.input_value() == "7d"
    retention.fill("soon")
    window.see("A duration such as 90s, 1h 30min or 7d, or unlimited")
    assert page.get_by_role("button", name="Review changes").is_disabled()
    retention.fill("1h 30min")
    window.see("5,400,000 ms")
    page.get_by_label("compression.type").select_option("zstd")
    page.get_by_role("checkbox", name="compact").check()
    page.get_by_role("button", name="Reset retention.bytes to its default").click()
    assert unnamed_controls(page) == []
    assert axe_violations(page) == []
    assert low_contrast(page) == []
    window.see("4 unsaved changes")
    page.get_by_role("button", name="Review changes").click()
    window.see("Change 4 settings of edited?")
    window.see("Messages beyond the new limit are deleted soon")
    window.see("--set retention.ms=5400000")
    window.picture("light-config-review")
    page.get_by_role("button", name="Apply").click()
    window.see("4 settings of edited changed.")
    page.get_by_role("button", name="Reset retention.ms to its default").wait_for()
    config = described(node, "edited")
    assert (config["retention.ms"], config["compression.type"], config["cleanup.policy"]) == ("5400000", "zstd", "delete,compact")
    assert config.get("retention.bytes", "-1") == "-1"


def test_what_the_node_refuses_is_told_before_it_is_applied(window: Window, node: RunningNode) -> None:
    page = window.page
    window.open("/topics/empty-topic/config")
    page.get_by_label("min.compaction.lag.ms").fill("2d")
    page.get_by_label("max.compaction.lag.ms").fill("1d")
    page.get_by_role("button", name="Review changes").click()
    window.see("no message could satisfy both")
    assert page.get_by_role("button", name="Apply").is_disabled()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Discard").click()
    assert page.get_by_label("min.compaction.lag.ms").input_value() == "0ms"
    window.forgive("status of 422")


def test_a_topic_is_cloned_with_its_settings(window: Window, node: RunningNode) -> None:
    page = window.page
    window.open("/topics/readings")
    page.get_by_role("button", name="Actions").click()
    page.get_by_role("menuitem", name="Clone topic").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("retention.ms").wait_for()
    dialog.get_by_label("Name of the new topic").fill("readings-2")
    dialog.get_by_label("Partitions").fill("3")
    copy = f"penstock topic copy readings readings-2 --bootstrap {node.bootstrap}"
    window.see(copy)
    window.picture("light-clone")
    dialog.get_by_role("button", name="Clone", exact=True).click()
    page.wait_for_url("**/topics/readings-2")
    window.see("0 messages")
    window.see("3 partitions")
    assert described(node, "readings-2")["retention.ms"] == "3600000"
    node.ok(*copy.split()[1:5])
    copied, read = (sorted(node.ok("consume", name, "--format", "hex").splitlines()) for name in ("readings-2", "readings"))
    assert copied == read


def test_several_topics_are_changed_and_deleted_and_each_failure_is_named(window: Window, node: RunningNode) -> None:
    page = window.page
    names = [f"bulk-{number}" for number in range(3)]
    node.ok("topic", "create", *names)
    node.ok("produce", "bulk-0", "one")
    window.open("/topics?search=bulk-")
    page.get_by_label("Select all matching topics").check()
    window.see("3 topics selected")
    page.get_by_role("button", name="Change a setting").click()
    page.get_by_label("Setting", exact=True).select_option("retention.ms")
    page.get_by_label("Value", exact=True).fill("3d")
    page.get_by_role("button", name="Apply").click()
    window.see("All done.")
    assert {described(node, name)["retention.ms"] for name in names} == {"259200000"}
    page.get_by_role("dialog").get_by_role("button", name="Close").last.click()
    page.get_by_label("Select all matching topics").check()
    page.get_by_role("button", name="Delete messages").click()
    window.see("1 message")
    page.get_by_label("Type purge 3 to confirm").fill("purge 3")
    page.get_by_role("dialog").get_by_role("button", name="Delete messages").click()
    window.see("All done.")
    assert node.ok("consume", "bulk-0") == ""
    page.get_by_role("dialog").get_by_role("button", name="Close").last.click()
    page.get_by_label("Select all matching topics").check()
    page.get_by_role("button", name="Delete topics").click()
    window.see("bulk-0, bulk-1, bulk-2")
    node.ok("topic", "delete", "bulk-1", "--yes")
    page.get_by_label("Type delete 3 to confirm").fill("delete 3")
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    window.see("2 of 3 topics done, 1 failed")
    assert axe_violations(page) == []
    window.picture("light-bulk-failed")
    page.get_by_role("dialog").get_by_role("button", name="Close").last.click()
    window.see("No matching topics")
    assert "bulk-" not in node.ok("topic", "list")
    window.forgive("status of 404")


def test_the_partition_map_shows_leaders_and_shares(browser: Browser, node: RunningNode) -> None:
    node.ok("topic", "create", "skewed", "--partitions", "6")
    node.ok("produce", "skewed", "x" * 5000, "-p", "4")
    with opened_window(browser, base_url(node), size=PHONE) as window:
        page = window.page
        window.open("/topics/skewed/partitions")
        window.see("All 6 partitions have a leader.")
        window.see("Partition 4 holds 6.0 times an even share")
        page.get_by_role("button", name="Messages", exact=True).click()
        window.picture("phone-partition-map")
        page.get_by_role("link", name="Partition 4, leader on node 1").click()
        window.until("location.search === '?partition=4'")


def test_quotas_are_added_changed_and_deleted(window: Window, node: RunningNode) -> None:
    page = window.page
    window.open("/security")
    window.see("No quotas yet")
    page.get_by_role("button", name="Add quota").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("User").select_option("any")
    dialog.get_by_label("Client id").select_option("one")
    dialog.get_by_label("Name").fill("importer")
    dialog.get_by_label("Produce, per second").fill("much")
    window.see("A size such as 512 KiB or 10 MiB")
    dialog.get_by_label("Produce, per second").fill("10 MiB")
    window.picture("light-quota")
    dialog.get_by_role("button", name="Save").click()
    table = page.get_by_role("table", name="Quotas")
    table.get_by_text("client id importer").wait_for()
    table.get_by_text("10 MiB/s").wait_for()
    assert axe_violations(page) == []
    page.get_by_role("button", name="Change the quota of client id importer").click()
    dialog.get_by_label("Produce, per second").fill("")
    assert dialog.get_by_role("button", name="Save").is_disabled(), "a quota without a limit is none"
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Delete the quota of client id importer").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    window.see("No quotas yet")
