"""Messages as `penstock consume` writes them: fields side by side, in text or hexadecimal, or a JSON object a line."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from penstock.cli.record_batch import Record

FIELDS: Final = ("partition", "offset", "time", "headers", "key", "value")
FORMATS: Final = ("text", "json", "hex")

Render = Callable[[int, Record], bytes]


def renderer(form: str, topic: str, *, fields: list[str], separator: bytes, delimiter: bytes) -> Render:
    """A function that writes the message of a partition."""
    if form == "json":
        return lambda partition, record: _json(topic, partition, record)
    as_text = bytes.hex if form == "hex" else None

    def render(partition: int, record: Record) -> bytes:
        if fields == ["value"] and as_text is None:
            return (record.value or b"") + delimiter
        return separator.join(_field(name, partition, record, as_text) for name in fields) + delimiter

    return render


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
