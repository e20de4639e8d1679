"""The stored form of values in rows and attributes: JSON, with YSON inside for what JSON cannot express.

A string that is not UTF-8, an unsigned number within an `any`, a value with attributes: each is stored as {"$yson": "..."}, its
YSON as text. So readers through Kafka or Spark get plain JSON, and YT's clients lose nothing.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

import orjson
from yt import yson
from yt.yson import YsonStringProxy, YsonType, YsonUint64

from penstock.core.errors import CorruptionError

ESCAPE = "$yson"
DEPTH_MAX = 64


def to_plain(value: Any, depth: int = 0) -> Any:
    """Escape everything in a value that JSON cannot express."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return value
    if kind is float:
        return value if isfinite(value) else _escape(value)
    if isinstance(value, YsonStringProxy | YsonUint64 | bytes) or (isinstance(value, YsonType) and value.has_attributes()):
        return _escape(value)
    if depth >= DEPTH_MAX:
        return _escape(value)
    if isinstance(value, dict):
        if ESCAPE in value or not all(isinstance(key, str) for key in value):
            return _escape(value)
        return {str(key): to_plain(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list):
        return [to_plain(each, depth + 1) for each in value]
    for simple in (str, int, float):
        if isinstance(value, simple):
            return simple(value)
    return _escape(value)


def from_plain(value: Any) -> Any:
    """Restore a value that was escaped by `to_plain`."""
    if isinstance(value, dict):
        if len(value) == 1 and ESCAPE in value:
            return _unescape(value[ESCAPE])
        return {key: from_plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [from_plain(each) for each in value]
    return value


def to_stored(value: Any) -> bytes:
    """Encode one value."""
    return orjson.dumps(to_plain(value))


def from_stored(raw: bytes) -> Any:
    """Decode one value."""
    return from_plain(orjson.loads(raw))


def _escape(value: Any) -> dict[str, str]:
    return {ESCAPE: bytes(yson.dumps(value, yson_format="text")).decode("ascii")}


def _unescape(text: Any) -> Any:
    try:
        return yson.loads(str(text).encode(), always_create_attributes=False)
    except (yson.YsonError, RuntimeError, UnicodeDecodeError) as error:
        raise CorruptionError(f"a stored value is not YSON: {error}") from error
