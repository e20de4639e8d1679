"""Readable forms of keys, values and headers: JSON, text, or hexadecimal digits."""

from __future__ import annotations

import json
import re
from typing import Any, Final, Literal

import msgspec

from penstock.server.http.route import ResponseModel
from penstock.server.http.stored_records import Record

JSON_BYTES_MAX: Final = 32 << 10  # of a preview; what is larger is shown as cut text
TEXT_BYTES_MAX: Final = 4 << 10
HEX_BYTES_MAX: Final = 512
FULL_BYTES_MAX: Final = 2 << 20
SIZE_DIGITS_MAX: Final = 18
_PAYLOAD_FIELDS: Final = {"object_name": "penstock.object_name", "size": "penstock.size", "crc32c": "penstock.crc32c"}
_NOT_TEXT: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffd]")


class SchemaNameView(ResponseModel, frozen=True):
    """A schema of the registry."""

    id: int
    subject: str
    version: int
    type: str


class OctetsView(ResponseModel, frozen=True):
    """Bytes of a message. `data` is a JSON value if the kind is json, null if there is none, otherwise a string. `size` is
    that of the whole value. If they were decoded, `schema` is what with; `problem` says why they could not be."""

    kind: Literal["null", "json", "text", "hex"]
    data: Any
    truncated: bool
    size: int
    schema: SchemaNameView | None = None
    problem: str | None = None


class HeaderView(ResponseModel, frozen=True):
    """One header of a message."""

    name: str
    value: OctetsView


class PayloadView(ResponseModel, frozen=True):
    """The location of a stream message's payload, if it is too large for the log. The size is -1 if it is unknown."""

    object_name: str
    size: int
    crc32c: str | None


class MessageView(ResponseModel, frozen=True):
    """One message."""

    partition: int
    offset: int
    timestamp: int
    timestamp_type: Literal["create", "append"]
    key: OctetsView
    value: OctetsView
    headers: list[HeaderView]
    size: int
    payload: PayloadView | None


def shown_octets(raw: bytes | None, *, full: bool = False) -> OctetsView:
    """The view of some bytes, truncated if they are long."""
    if raw is None:
        return OctetsView(kind="null", data=None, truncated=False, size=0)
    json_max, text_max = (FULL_BYTES_MAX,) * 2 if full else (JSON_BYTES_MAX, TEXT_BYTES_MAX)
    if raw[:1] in (b"{", b"[") and len(raw) <= json_max and _is_json(raw):
        return OctetsView(kind="json", data=msgspec.Raw(raw), truncated=False, size=len(raw))
    text = _text_of(raw[:text_max], is_cut=len(raw) > text_max)
    if text is not None:
        return OctetsView(kind="text", data=text, truncated=len(raw) > text_max, size=len(raw))
    return shown_as_hex(raw, full=full)


def shown_as_hex(raw: bytes, *, full: bool = False) -> OctetsView:
    """Bytes as hexadecimal digits."""
    size_max = FULL_BYTES_MAX if full else HEX_BYTES_MAX
    return OctetsView(kind="hex", data=raw[:size_max].hex(), truncated=len(raw) > size_max, size=len(raw))


def shown_as_text(raw: bytes, *, full: bool = False) -> OctetsView:
    """Some bytes as text, with a replacement for what is none."""
    size_max = FULL_BYTES_MAX if full else TEXT_BYTES_MAX
    text = raw[:size_max].decode(errors="replace")
    return OctetsView(kind="text", data=text, truncated=len(raw) > size_max, size=len(raw))


def shown_message(record: Record, key: OctetsView, value: OctetsView, *, full: bool = False) -> MessageView:
    """A stored message, with its key and value as they are to be shown."""
    return MessageView(
        partition=record.partition,
        offset=record.offset,
        timestamp=record.timestamp,
        timestamp_type="append" if record.is_append_time else "create",
        key=key,
        value=value,
        headers=[HeaderView(name=name, value=shown_octets(value, full=full)) for name, value in record.headers],
        size=record.size,
        payload=_payload_of(record),
    )


def _payload_of(record: Record) -> PayloadView | None:
    headers = {name: (value or b"").decode(errors="replace") for name, value in record.headers if name.startswith("penstock.")}
    fields = {field: headers[name] for field, name in _PAYLOAD_FIELDS.items() if name in headers}
    size = fields.get("size", "")
    # A producer of Kafka can send any headers; of a stream's message the value says the same.
    if "object_name" not in fields or json.dumps(fields).encode() != record.value or len(size) > SIZE_DIGITS_MAX:
        return None
    return PayloadView(
        object_name=fields["object_name"],
        size=int(size) if size.isascii() and size.isdigit() else -1,
        crc32c=fields.get("crc32c"),
    )


def _is_json(raw: bytes) -> bool:
    try:
        msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _text_of(raw: bytes, *, is_cut: bool) -> str | None:
    """The bytes as text; None if they are not text. A character that truncation has split is dropped."""
    text = raw.decode(errors="replace")
    if is_cut:
        text = text.rstrip("\ufffd")
    return None if _NOT_TEXT.search(text) else text
