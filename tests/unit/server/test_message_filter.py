"""The language that messages are filtered by."""

from __future__ import annotations

import pytest

from penstock.server.http.errors import MalformedRequestError
from penstock.server.http.message_filter import TERMS_MAX, compile_filter
from penstock.server.http.stored_records import Record

VALUE = b'{"customer": "Anna", "total": 120.5, "paid": true, "note": null, "items": [{"id": 7}], "number": "42"}'
ORDER = Record(2, 10, 1_700_000_000_000, False, b"order-5", VALUE, (("source", b"web"), ("empty", None)), 100)
TOMBSTONE = Record(0, 0, 0, False, b"gone", None, (), 10)
BINARY = Record(0, 1, 0, False, None, b"\xff\x00", (), 10)


@pytest.mark.parametrize(
    "text",
    [
        "key = order-5",
        "key ~ ORDER",
        "value.customer = Anna",
        'value.customer = "Anna" and value.total > 100',
        "value.total <= 120.5",
        "value.total != 7",
        "value.paid = true",
        "value.note = null",
        "value.items[0].id = 7",
        "value.items",
        "not value.absent",
        "not value.customer = Boris",
        "header.source = web",
        "partition = 2 and offset >= 10 and size < 1000",
        "timestamp > 1699999999999",
        "value ~ 'customer'",
        "value.number = 42",  # a text that looks like a number is compared as a text
        "value.number > 41",
        "value.items ~ '\"id\":7'",
    ],
)
def test_what_matches(text: str) -> None:
    assert compile_filter(text)(ORDER)


@pytest.mark.parametrize(
    "text",
    [
        "key = order",
        "value.customer = anna",
        "value.total > 121",
        "value.customer > 5",
        "value.paid > 0",
        "value.paid = 1",
        "value.absent",
        "value.absent = null",
        "value.items[1].id = 7",
        "header.absent ~ x",
        "not key",
        "key = order-5 and partition = 3",
    ],
)
def test_what_does_not(text: str) -> None:
    assert not compile_filter(text)(ORDER)


def test_messages_without_json_have_no_fields() -> None:
    for record in (TOMBSTONE, BINARY):
        assert not compile_filter("value.customer = Anna")(record)
    assert compile_filter("not value")(TOMBSTONE)
    assert not compile_filter("key")(BINARY)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("total > 5", "unknown field 'total'"),
        ("value.total >", "expected a value after >"),
        ("value.a = 1 or value.b = 2", "character 13 .*expected 'and'"),
        ("value.paid > true", "compares numbers and texts"),
        ("value..a = 1", "is not a path"),
        ('key = "open', "is a quote missing"),
        ("not", "expected a field"),
        (" and ".join(["key"] * (TERMS_MAX + 1)), "more than 20 conditions"),
    ],
)
def test_mistakes_are_told_with_their_place(text: str, words: str) -> None:
    with pytest.raises(MalformedRequestError, match=words):
        compile_filter(text)
