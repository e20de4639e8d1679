"""Encodes and decodes parameters, values and rows: YSON in all its forms, and JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import orjson
from yt import yson
from yt.yson import YsonEntity, YsonStringProxy, YsonType

from penstock.gateway.yt.errors import GENERIC, INVALID_FORMAT, YtError

YSON, JSON = "yson", "json"
YSON_FORMS = ("text", "binary", "pretty")
ROWS_MAX = 100_000  # of one request, as in YT
JSON_ROW_BYTES_MAX = 32 << 20  # a row of JSON is parsed at once, unlike YSON
JSON_VALUES_MAX = 500_000  # converted one by one
_LONG_NUMBER = re.compile(rb"[0-9]{19}")


class Format(NamedTuple):
    """How values are encoded. `form` is for YSON; `is_latin` is for JSON: each character stands for a byte."""

    name: str
    form: str = "text"
    is_latin: bool = True
    is_pretty: bool = False

    @property
    def content_type(self) -> str:
        """The HTTP content type."""
        if self.name == JSON:
            return "application/json"
        return "application/x-yt-yson-binary" if self.form == "binary" else f"application/x-yt-yson-{self.form}"


DEFAULT = Format(JSON)


def parse_format(parameter: object) -> Format:
    """The format that a parameter names; JSON by default."""
    if parameter is None:
        return DEFAULT
    if isinstance(parameter, bytes):
        parameter = parameter.decode(errors="replace")
    if isinstance(parameter, str) and parameter.startswith("<"):
        parameter = parse_yson(parameter.encode(errors="replace"), "a format")
    name = str(parameter)
    attributes: dict[str, Any] = dict(parameter.attributes) if isinstance(parameter, YsonType) else {}
    if name == YSON:
        form = str(attributes.get("format", "binary"))
        if form not in YSON_FORMS:
            raise YtError(INVALID_FORMAT, f"the format of YSON is one of {', '.join(YSON_FORMS)}, not {form!r}")
        return Format(YSON, form)
    if name == JSON:
        is_latin = _is_true(attributes.get("encode_utf8", True))
        return Format(JSON, is_latin=is_latin, is_pretty=attributes.get("format") == "pretty")
    raise YtError(INVALID_FORMAT, f"format {name!r} is not supported; use yson or json")


def parse_yson(raw: bytes, what: str) -> Any:
    """Decode one value."""
    try:
        return yson.loads(raw, always_create_attributes=False)
    except (yson.YsonError, UnicodeDecodeError, RuntimeError) as error:
        raise YtError(INVALID_FORMAT, f"{what} is not YSON: {error}") from error


def parse_json(raw: bytes, what: str, *, is_latin: bool = False) -> Any:
    """Decode one value of YT's JSON, where attributes stand beside a $value."""
    try:
        if _is_plain_json(raw, is_latin=is_latin):
            return orjson.loads(raw)
        if raw.count(b",") > JSON_VALUES_MAX:
            raise YtError(
                INVALID_FORMAT,
                f"{what} has more than {JSON_VALUES_MAX} values with attributes, long numbers or text "
                f"that is not ASCII among them; send it as YSON",
            )
        plain = json.loads(raw)
        return _from_latin(_strip_types(yson.json_to_yson(plain))) if is_latin else _strip_types(yson.json_to_yson(plain))
    except (ValueError, yson.YsonError, RecursionError) as error:
        raise YtError(INVALID_FORMAT, f"{what} is not JSON: {error}") from error


def _is_plain_json(raw: bytes, *, is_latin: bool) -> bool:
    """Whether a plain JSON parser gives the right value: no attributes, no number beyond 64 bits, and only ASCII if other
    characters would stand for bytes."""
    if b'"$' in raw or _LONG_NUMBER.search(raw):
        return False
    return not is_latin or (raw.isascii() and b"\\u" not in raw)


def read_value(format_: Format, raw: bytes) -> Any:
    """Decode the value in the body of a request."""
    if format_.name == JSON:
        return parse_json(raw, "the value", is_latin=format_.is_latin)
    return parse_yson(raw, "the value")


def read_rows(format_: Format, raw: bytes) -> list[dict[str, Any]]:
    """Decode the rows in the body of a request, at most ROWS_MAX. The parser detects whether YSON is text or binary."""
    rows: list[dict[str, Any]] = []
    # One by one in Python, so that a thread which reads many rows releases the interpreter in between.
    for row in _json_rows(format_, raw) if format_.name == JSON else _yson_rows(raw):
        if not isinstance(row, dict):
            raise YtError(INVALID_FORMAT, f"a row must be a map of columns, not {type(row).__name__}")
        rows.append(row)
        if len(rows) > ROWS_MAX:
            raise YtError(GENERIC, f"too many rows in one request; at most {ROWS_MAX} are allowed")
    return rows


def _json_rows(format_: Format, raw: bytes) -> Iterator[Any]:
    for line in raw.splitlines():
        if len(line) > JSON_ROW_BYTES_MAX:
            raise YtError(INVALID_FORMAT, f"a row has {len(line)} bytes of JSON; at most {JSON_ROW_BYTES_MAX} are allowed")
        if line.strip():
            yield parse_json(line, "a row", is_latin=format_.is_latin)


def _yson_rows(raw: bytes) -> Iterator[Any]:
    try:
        yield from yson.load(_BlockReader(raw), yson_type="list_fragment", always_create_attributes=False)
    except (yson.YsonError, UnicodeDecodeError, RuntimeError, TypeError) as error:
        raise YtError(INVALID_FORMAT, f"the rows are not YSON: {error}") from error


class _BlockReader:
    """Bytes as a file. The parser holds the interpreter's lock between reads, so small reads let other threads run."""

    def __init__(self, raw: bytes) -> None:
        self._raw = memoryview(raw)
        self._at = 0

    def read(self, size: int) -> bytes:
        """Read the next bytes."""
        block = bytes(self._raw[self._at : self._at + size])
        self._at += size
        return block


def write_value(format_: Format, value: object) -> bytes:
    """Encode a value."""
    if format_.name == JSON:
        plain = yson.yson_to_json(value)
        if format_.is_latin:
            plain = _to_latin(plain)
        return json.dumps(plain, indent=4 if format_.is_pretty else None, ensure_ascii=False).encode()
    return bytes(yson.dumps(value, yson_format=format_.form))


def write_rows(format_: Format, rows: Iterable[dict[str, Any]]) -> bytes:
    """Encode rows."""
    if format_.name == JSON:
        encode = _to_latin if format_.is_latin else _same
        lines = [json.dumps(encode(yson.yson_to_json(row)), ensure_ascii=False) for row in rows]
        return "".join(f"{line}\n" for line in lines).encode()
    form = "text" if format_.form == "pretty" else format_.form
    return bytes(yson.dumps(list(rows), yson_format=form, yson_type="list_fragment"))


def text_yson(value: object) -> bytes:
    """Encode a value as one line of ASCII."""
    return bytes(yson.dumps(value, yson_format="text"))


def _is_true(value: object) -> bool:
    return value not in (False, "false", b"false")


def _same(value: object) -> object:
    return value


def _strip_types(value: Any) -> Any:
    """Values without attributes as plain Python values, as the YSON parser returns them."""
    if isinstance(value, YsonType) and value.has_attributes():
        return value
    if isinstance(value, dict):
        return {key: _strip_types(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_strip_types(each) for each in value]
    if isinstance(value, YsonEntity):
        return None
    if isinstance(value, yson.YsonBoolean):
        return bool(value)
    if isinstance(value, yson.YsonUint64):
        return value
    for plain in (str, int, float):
        if isinstance(value, plain):
            return plain(value)
    return value


def _from_latin(value: Any) -> Any:
    """Strings whose characters stand for bytes, as UTF-8 text if the bytes are that."""
    if isinstance(value, str):
        try:
            raw = value.encode("latin-1")
        except UnicodeEncodeError:
            return value  # it was sent as text after all
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return _proxy(raw)
    if isinstance(value, dict):
        return {_from_latin(key): _from_latin(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_from_latin(each) for each in value]
    return value


def _proxy(raw: bytes) -> YsonStringProxy:
    """A string of bytes that are not UTF-8."""
    return yson.loads(yson.dumps(raw, yson_format="binary"), always_create_attributes=False)


def _to_latin(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode().decode("latin-1")
    if isinstance(value, dict):
        return {_to_latin(key): _to_latin(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_to_latin(each) for each in value]
    return value
