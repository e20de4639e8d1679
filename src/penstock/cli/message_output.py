"""Messages as `penstock consume` writes them: fields side by side, in text or hexadecimal, a JSON object a line, or by a format
with % directives, which are those of kcat."""

from __future__ import annotations

import base64
import json
import re
from argparse import ArgumentTypeError
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from penstock.cli.client_options import separator
from penstock.client.record_batch import Record

FIELDS: Final = ("partition", "offset", "time", "headers", "key", "value")
FORMATS: Final = ("text", "json", "hex")

Render = Callable[[int, Record], bytes]

_DIRECTIVES: Final[dict[str, Callable[[bytes, int, Record], bytes]]] = {
    "t": lambda topic, _, __: topic,
    "p": lambda _, partition, __: str(partition).encode(),
    "o": lambda _, __, record: str(record.offset).encode(),
    "k": lambda _, __, record: record.key or b"",
    "s": lambda _, __, record: record.value or b"",
    "K": lambda _, __, record: str(_size(record.key)).encode(),
    "S": lambda _, __, record: str(_size(record.value)).encode(),
    "R": lambda _, __, record: _size(record.value).to_bytes(4, "big", signed=True),
    "T": lambda _, __, record: str(record.timestamp_ms).encode(),
    "h": lambda _, __, record: b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers),
    "%": lambda _, __, ___: b"%",
}
_DIRECTIVE: Final = re.compile(r"%(.?)", re.DOTALL)


def message_format(text: str) -> str:
    """The name of a format, or one with directives; ValueError if it is neither."""
    unknown = [letter for letter in _DIRECTIVE.findall(text) if letter not in _DIRECTIVES]
    if unknown:
        raise ArgumentTypeError(f"there is no directive %{unknown[0]}; use {', '.join('%' + letter for letter in _DIRECTIVES)}")
    if text not in FORMATS and "%" not in text:
        raise ArgumentTypeError(f"{text!r} is neither {', '.join(FORMATS)} nor a format such as '%k: %s\\n'")
    if text not in FORMATS:
        try:
            separator(text)
        except ValueError:
            raise ArgumentTypeError(f"{text!r} has an unknown escape; use \\n, \\t, \\r, \\0, \\\\ and \\xHH") from None
    return text


def renderer(form: str, topic: str, *, fields: list[str], separator: bytes, delimiter: bytes) -> Render:
    """A function that writes the message of a partition."""
    if form == "json":
        return lambda partition, record: _json(topic, partition, record)
    if form not in FORMATS:
        return _by_format(form, topic.encode())
    as_text = bytes.hex if form == "hex" else None

    def render(partition: int, record: Record) -> bytes:
        if fields == ["value"] and as_text is None:
            return (record.value or b"") + delimiter
        return separator.join(_field(name, partition, record, as_text) for name in fields) + delimiter

    return render


def _by_format(form: str, topic: bytes) -> Render:
    """Text and directives in turn: the pattern captures the letter of a directive at every second place."""
    parts = _DIRECTIVE.split(form)
    texts, writers = [separator(text) for text in parts[::2]], [_DIRECTIVES[letter] for letter in parts[1::2]]

    def render(partition: int, record: Record) -> bytes:
        written = [texts[0]]
        for write, text in zip(writers, texts[1:], strict=True):
            written += (write(topic, partition, record), text)
        return b"".join(written)

    return render


def _size(octets: bytes | None) -> int:
    return -1 if octets is None else len(octets)


def _field(name: str, partition: int, record: Record, as_text: Callable[[bytes], str] | None) -> bytes:
    if name == "partition":
        return str(partition).encode()
    if name == "offset":
        return str(record.offset).encode()
    if name == "time":
        return _time(record.timestamp_ms).encode()
    if name == "headers":
        shown = (key.encode() + b"=" + _octets(value, as_text) for key, value in record.headers)
        return b",".join(shown)
    return _octets(record.key if name == "key" else record.value, as_text)


def _octets(value: bytes | None, as_text: Callable[[bytes], str] | None) -> bytes:
    if value is None:
        return b""
    return value if as_text is None else as_text(value).encode()


def _time(timestamp_ms: int) -> str:
    if timestamp_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _json(topic: str, partition: int, record: Record) -> bytes:
    fields: dict[str, object] = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **_value("key", record.key),
        **_value("value", record.value),
        "headers": [{"name": name, **_value("value", value)} for name, value in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _value(name: str, value: bytes | None) -> dict[str, str | None]:
    """A string where the bytes are UTF-8, else base64 under another name."""
    try:
        return {name: None if value is None else value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value or b"").decode()}
