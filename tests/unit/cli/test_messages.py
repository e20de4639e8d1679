"""Messages in and out of commands, and what is said when they are not as they must be."""

from __future__ import annotations

import json
import os
import threading
from argparse import ArgumentTypeError

import pytest

from penstock.cli.client_options import separator
from penstock.cli.failure import CommandError
from penstock.cli.message_input import InputFormat, read_pieces
from penstock.cli.message_output import message_format, renderer
from penstock.client.messages import MessageDraft
from penstock.client.record_batch import Record

RECORD = Record(7, 1_700_000_000_123, b"k\xff", b"v", (("a", b"1"), ("b", None)))


def _format(name: str, *, key_separator: bytes | None = None, key: bytes | None = None) -> InputFormat:
    return InputFormat(name, key_separator=key_separator, key=key, headers=(("h", b"1"),))


def _pieces(data: bytes, delimiter: bytes = b"\n") -> list[bytes]:
    reader, writer = os.pipe()

    def write() -> None:
        with os.fdopen(writer, "wb") as file:
            file.write(data)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        return [piece for pieces in read_pieces(reader, delimiter) for piece in pieces]
    finally:
        thread.join()
        os.close(reader)


@pytest.mark.parametrize(
    ("data", "delimiter", "pieces"),
    [
        (b"", b"\n", []),
        (b"one\ntwo\n", b"\n", [b"one", b"two"]),
        (b"one\n\ntwo", b"\n", [b"one", b"", b"two"]),
        (b"a--b--", b"--", [b"a", b"b"]),
        (b"x" * 300_000 + b"\ny", b"\n", [b"x" * 300_000, b"y"]),
        (b"\0".join([b"z"] * 100_000), b"\0", [b"z"] * 100_000),
    ],
)
def test_input_is_cut_at_delimiters(data: bytes, delimiter: bytes, pieces: list[bytes]) -> None:
    assert _pieces(data, delimiter) == pieces


def test_a_message_is_handed_on_before_the_next_one_comes() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"first\nsec")
    pieces = read_pieces(reader, b"\n")
    assert next(pieces) == [b"first"]
    os.write(writer, b"ond\n")
    os.close(writer)
    assert list(pieces) == [[b"second"]]
    os.close(reader)


def test_text_may_have_a_key() -> None:
    assert _format("text").read(b"a:b") == MessageDraft(None, b"a:b", (("h", b"1"),))
    assert _format("text", key_separator=b":").read(b"a:b:c") == MessageDraft(b"a", b"b:c", (("h", b"1"),))
    assert _format("text", key=b"k").read(b"v") == MessageDraft(b"k", b"v", (("h", b"1"),))


def test_hex_is_read() -> None:
    assert _format("hex", key_separator=b":").read(b"6b:00ff") == MessageDraft(b"k", b"\x00\xff", (("h", b"1"),))


def test_json_is_read() -> None:
    line = json.dumps({"key": "k", "value": {"a": 1}, "headers": {"x": "y"}, "partition": 3, "timestamp_ms": 5})
    assert _format("json").read(line.encode()) == MessageDraft(b"k", b'{"a":1}', (("x", b"y"), ("h", b"1")), 3, 5)


def test_what_consume_writes_as_json_produce_reads() -> None:
    line = renderer("json", "t", fields=[], separator=b"", delimiter=b"")(2, RECORD)
    form = InputFormat("json", key_separator=None, key=None, headers=())
    assert form.read(line) == MessageDraft(RECORD.key, RECORD.value, RECORD.headers, 2, RECORD.timestamp_ms)


@pytest.mark.parametrize(
    ("name", "piece", "message"),
    [
        ("json", b"{", "message 1 of the input: it is not JSON"),
        ("json", b"[]", "not a JSON object"),
        ("json", b'{"vale": 1}', "unknown field 'vale'"),
        ("json", b'{"partition": -1}', "partition is -1"),
        ("json", b'{"timestamp_ms": 9223372036854775808}', "timestamp_ms is 9223372036854775808"),
        ("json", b'{"value_base64": "%"}', "value_base64 is not base64"),
        ("json", b'{"headers": ["a"]}', "headers must be"),
        ("hex", b"0g", "it is not hexadecimal"),
    ],
)
def test_bad_input_is_told_with_its_number(name: str, piece: bytes, message: str) -> None:
    with pytest.raises(CommandError, match=message) as caught:
        _format(name).read(piece)
    assert caught.value.exit_code == 2


def test_a_missing_key_separator_is_told() -> None:
    form = _format("text", key_separator=b"=")
    form.read(b"a=b")
    with pytest.raises(CommandError, match="message 2 of the input: there is no key separator '='"):
        form.read(b"ab")


def test_fields_are_written_in_the_order_asked_for() -> None:
    render = renderer("text", "t", fields=["time", "partition", "offset", "headers", "value"], separator=b"|", delimiter=b"\0")
    assert render(3, RECORD) == b"2023-11-14T22:13:20.123Z|3|7|a=1,b=|v\0"


def test_hex_is_written() -> None:
    assert renderer("hex", "t", fields=["key", "value"], separator=b" ", delimiter=b"\n")(0, RECORD) == b"6bff 76\n"


def test_a_time_that_no_calendar_has_is_written_as_a_number() -> None:
    render = renderer("text", "t", fields=["time"], separator=b"", delimiter=b"")
    assert render(0, RECORD._replace(timestamp_ms=1 << 62)) == str(1 << 62).encode()
    assert render(0, RECORD._replace(timestamp_ms=-1)) == b"-"


@pytest.mark.parametrize(("text", "raw"), [(r"\n", b"\n"), (r"\t|", b"\t|"), (r"\x00\\", b"\0\\"), ("é", "é".encode())])
def test_separators_may_be_escaped(text: str, raw: bytes) -> None:
    assert separator(text) == raw


def test_an_unknown_escape_is_an_error() -> None:
    with pytest.raises(ValueError, match="q"):
        separator(r"\q")


def test_a_format_is_that_of_kcat() -> None:
    record = Record(7, 1_700_000_000_000, b"key", b"v\xff", (("a", b"1"), ("b", None)))
    render = renderer(r"%t|%p|%o|%k|%s|%K|%S|%T|%h|100%%\x41\n", "orders", fields=[], separator=b"", delimiter=b"")
    assert render(3, record) == b"orders|3|7|key|v\xff|3|2|1700000000000|a=1,b=|100%A\n"
    empty = Record(0, -1, None, None)
    assert renderer("%k%s%K%S", "t", fields=[], separator=b"", delimiter=b"")(0, empty) == b"-1-1"
    assert renderer("%R", "t", fields=[], separator=b"", delimiter=b"")(0, empty) == b"\xff\xff\xff\xff"


@pytest.mark.parametrize(
    ("form", "words"), [("%x", "no directive %x"), ("50%", "no directive"), ("avro", "neither text"), (r"%s\q", "escape")]
)
def test_a_wrong_format_is_told(form: str, words: str) -> None:
    with pytest.raises(ArgumentTypeError, match=words):
        message_format(form)
