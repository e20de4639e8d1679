"""Values as they are stored, in rows and in attributes: JSON, and where that cannot say something, YSON within it.

A string that is not UTF-8, an unsigned number within an `any`, a value with attributes: each is stored as {"$yson": "..."}, its
YSON as text. So whoever reads the topic through Kafka, or with Spark, has plain JSON, and nothing is lost for YT's clients.
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


def plain(value: Any, depth: int = 0) -> Any:
    """The value with everything escaped that JSON cannot say."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return value
    if kind is float:
        return value if isfinite(value) else _escaped(value)
    if isinstance(value, YsonStringProxy | YsonUint64 | bytes) or (isinstance(value, YsonType) and value.has_attributes()):
        return _escaped(value)
    if depth >= DEPTH_MAX:
        return _escaped(value)
    if isinstance(value, dict):
        if ESCAPE in value or not all(isinstance(key, str) for key in value):
            return _escaped(value)
        return {str(key): plain(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each, depth + 1) for each in value]
    for simple in (str, int, float):
        if isinstance(value, simple):
            return simple(value)
    return _escaped(value)


def restored(value: Any) -> Any:
    """The value that was made plain."""
    if isinstance(value, dict):
        if len(value) == 1 and ESCAPE in value:
            return _unescaped(value[ESCAPE])
        return {key: restored(each) for key, each in value.items()}
    if isinstance(value, list):
        return [restored(each) for each in value]
    return value


def to_stored(value: Any) -> bytes:
    """The stored form of one value."""
    return orjson.dumps(plain(value))


def from_stored(raw: bytes) -> Any:
    """The value whose stored form is `raw`."""
    return restored(orjson.loads(raw))


def _escaped(value: Any) -> dict[str, str]:
    return {ESCAPE: bytes(yson.dumps(value, yson_format="text")).decode("ascii")}


def _unescaped(text: Any) -> Any:
    try:
        return yson.loads(str(text).encode(), always_create_attributes=False)
    except (yson.YsonError, RuntimeError, UnicodeDecodeError) as error:
        raise CorruptionError(f"a stored value is not YSON: {error}") from error
