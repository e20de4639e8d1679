"""Schemas in the console: what is decoded with them, and how people change them."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest

from tests.e2e.console.live_data import base_url, invoice_schema
from tests.e2e.console.window import Window
from tests.e2e.running_node import RunningNode

pytestmark = pytest.mark.slow


def registry_answer(node: RunningNode, path: str) -> Any:
    """What the registry itself answers."""
    with urllib.request.urlopen(f"{base_url(node)}/schema-registry{path}", timeout=60) as answer:
        return json.loads(answer.read())


def test_a_message_is_shown_decoded_with_its_schema_and_as_bytes(window: Window) -> None:
    page = window.page
    window.open("/topics/invoices?start=oldest&columns=value.customer")
    window.see("anna")  # a field of a decoded value
    page.locator("tr.message").first.click()
    page.get_by_role("region", name="Value at offset 0").wait_for()
    assert json.loads(page.get_by_role("region", name="Value at offset 0").inner_text())["customer"] == "anna"
    assert "000000  00 00 00 00" in page.get_by_role("region", name="Bytes at offset 0").inner_text()
    page.get_by_role("link", name="invoices-value, version 2").click()
    window.until("location.pathname === '/schemas/invoices-value'")
    window.see("that messages match their schema")


def test_a_decoder_is_chosen(window: Window) -> None:
    page = window.page
    window.open("/topics/invoices?start=oldest")
    page.get_by_label("Decode as").select_option("hex")
    window.until("document.querySelector('table.messages tbody td.preview')?.innerText.startsWith('00')")
    page.get_by_label("Decode as").select_option("avro")
    page.get_by_label("Subject of the schema").fill("invoices-value")
    page.get_by_label("Subject of the schema").press("Enter")
    window.until("location.search.includes('decoder=avro&schema=invoices-value')")
    window.until("document.querySelector('table.messages tbody td.preview')?.innerText.includes('anna')")


def test_versions_are_compared_line_by_line(window: Window) -> None:
    page = window.page
    window.open("/schemas/invoices-value")
    page.get_by_label("Compared with").select_option("1")
    page.get_by_role("region", name="Changes from version 1 to 2").wait_for()
    assert '"paid"' in page.locator(".diff-line.added").all_inner_texts()[-3]
    assert "against=1" in window.path


def test_a_schema_is_tried_registered_and_deleted(window: Window, node: RunningNode) -> None:
    page = window.page
    window.open("/schemas")
    page.get_by_role("button", name="Register schema").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Subject").fill("receipts-value")
    dialog.get_by_label("Schema", exact=True).fill("{")
    dialog.get_by_role("button", name="Register", exact=True).click()
    window.see("not JSON")
    window.forgive("422")
    dialog.get_by_label("Schema", exact=True).fill(invoice_schema())
    dialog.get_by_role("button", name="Register", exact=True).click()
    window.until("location.pathname === '/schemas/receipts-value'")
    window.see("No topic of that name")

    page.get_by_role("button", name="New version").click()
    dialog.get_by_label("Schema", exact=True).fill(invoice_schema({"name": "tax", "type": "int"}))
    dialog.get_by_role("button", name="Check compatibility").click()
    dialog.get_by_text("Not compatible").wait_for()
    assert "tax" in dialog.get_by_role("alert").inner_text()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_label("Compatibility level").select_option("NONE")
    window.see("The level is NONE.")
    assert registry_answer(node, "/config/receipts-value")["compatibilityLevel"] == "NONE"

    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Delete subject").click()
    page.get_by_label("to confirm").fill("receipts-value")
    page.get_by_role("button", name="Delete", exact=True).click()
    window.until("location.pathname === '/schemas'")
    assert "receipts-value" not in registry_answer(node, "/subjects")
