"""Messages as they come into `penstock produce`: cut out of a stream, then read in one of three formats."""

from __future__ import annotations

import base64
import binascii
import json
import os
import select
from collections.abc import Callable, Iterator
from typing import Any, Final

from penstock.cli.client_options import INT64_MAX
from penstock.cli.failure import usage
from penstock.client.messages import MessageDraft, encoded

READ_BYTES: Final = 1 << 16
CHUNK_BYTES: Final = 1 << 20  # what is handed on at once, however much more there is
LINGER_S: Final = 0.01
FORMATS: Final = ("text", "json", "hex")
_JSON_KEYS: Final = frozenset(
    {"key", "key_base64", "value", "value_base64", "headers", "partition", "timestamp_ms", "topic", "offset"}
)

Headers = tuple[tuple[str, bytes | None], ...]


def read_pieces(fd: int, delimiter: bytes) -> Iterator[list[bytes]]:
    """What stands between delimiters, as many pieces at a time as are there without much waiting. A last piece that has no
    delimiter after it counts too."""
    buffer = bytearray()
    pieces: list[bytes] = []
    size = 0
    while data := os.read(fd, READ_BYTES):
        searched = max(0, len(buffer) - len(delimiter) + 1)
        buffer += data
        if buffer.find(delimiter, searched) >= 0:
            *complete, buffer = buffer.split(delimiter)
            pieces += map(bytes, complete)
            size += sum(map(len, complete))
        if pieces and (size >= CHUNK_BYTES or not select.select([fd], [], [], LINGER_S)[0]):
            yield pieces
            pieces, size = [], 0
    if buffer:
        pieces.append(bytes(buffer))
    if pieces:
        yield pieces


class InputFormat:
    """How one piece is read: `text` as it is, `hex` in hexadecimal, `json` as an object."""

    def __init__(
        self,
        name: str,
        *,
        key_separator: bytes | None,
        key: bytes | None,
        headers: Headers,
        encode: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self._encode = encode  # makes of each value what is written
        self._read = {"text": self._text, "json": self._json, "hex": self._hex}[name]
        self._key_separator = key_separator
        self._key = key
        self._headers = headers
        self._number = 0

    def read(self, piece: bytes) -> MessageDraft:
        """The message in a piece; a usage error names the piece by its number."""
        self._number += 1
        try:
            draft = self._read(piece)
            value = encoded(draft.value)
            if self._encode is None or value is None:
                return draft
            return draft._replace(value=self._encode(value))
        except ValueError as error:
            raise usage(f"message {self._number} of the input: {error}") from None

    def _text(self, piece: bytes) -> MessageDraft:
        key, value = self._split(piece)
        return MessageDraft(key, value, self._headers)

    def _hex(self, piece: bytes) -> MessageDraft:
        key, value = self._split(piece)
        try:
            return MessageDraft(
                key if key is None or key is self._key else bytes.fromhex(key.decode()), _from_hex(value), self._headers
            )
        except ValueError:
            raise ValueError("it is not hexadecimal") from None

    def _json(self, piece: bytes) -> MessageDraft:
        try:
            fields = json.loads(piece)
        except ValueError as error:
            raise ValueError(f"it is not JSON: {error}") from None
        if not isinstance(fields, dict):
            raise ValueError('it is not a JSON object; write {"key": …, "value": …, "headers": …}')
        unknown = sorted(fields.keys() - _JSON_KEYS)
        if unknown:
            raise ValueError(f"unknown field {unknown[0]!r}; known are {', '.join(sorted(_JSON_KEYS))}")
        key = _field(fields, "key") if "key" in fields or "key_base64" in fields else self._key
        headers = _headers(fields.get("headers")) + self._headers
        return MessageDraft(key, _field(fields, "value"), headers, _whole(fields, "partition"), _whole(fields, "timestamp_ms"))

    def _split(self, piece: bytes) -> tuple[bytes | None, bytes]:
        if self._key_separator is None:
            return self._key, piece
        key, separator, value = piece.partition(self._key_separator)
        if not separator:
            raise ValueError(f"there is no key separator {self._key_separator.decode(errors='replace')!r} in it")
        return key, value


def _from_hex(text: bytes) -> bytes:
    return bytes.fromhex(text.decode())


def _field(fields: dict[str, Any], name: str) -> bytes | None:
    encoded = fields.get(f"{name}_base64")
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (TypeError, binascii.Error):
            raise ValueError(f"{name}_base64 is not base64") from None
    value = fields.get(name)
    if value is None:
        return None
    # What is not a string is itself the JSON that shall be written.
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()


def _headers(given: object) -> Headers:
    """Either `{"name": "value"}`, or a list of `{"name": …, "value": …}`, in which a name may stand twice."""
    if given is None:
        return ()
    if isinstance(given, dict):
        given = [{"name": name, "value": value} for name, value in given.items()]
    if not isinstance(given, list) or not all(isinstance(item, dict) and isinstance(item.get("name"), str) for item in given):
        raise ValueError('headers must be {"name": "value"} or [{"name": …, "value": …}]')
    return tuple((item["name"], _field(item, "value")) for item in given)


def _whole(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= INT64_MAX):
        raise ValueError(f"{name} is {value!r}; it must be a whole number, 0 or above, of 64 bits")
    return value
