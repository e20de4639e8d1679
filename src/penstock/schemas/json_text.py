"""JSON of schemas, read within bounds: strangers send it, and what follows is recursive."""

from __future__ import annotations

import json
import re
from math import isinf
from typing import Any, Final

from penstock.schemas.errors import InvalidSchemaError

TEXT_BYTES_MAX: Final = 1 << 20
DEPTH_MAX: Final = 100  # of objects and arrays; a nested record of Avro takes three
_STRING_OR_BRACKET: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[{]|[\]}]', re.DOTALL)


def check_size(text: str) -> None:
    """InvalidSchemaError if a schema is too long."""
    size = len(text.encode(errors="replace"))
    if size > TEXT_BYTES_MAX:
        raise InvalidSchemaError(f"the schema has {size} bytes, and at most {TEXT_BYTES_MAX} are taken; split it by references")


def read_json(text: str) -> Any:
    """Parse the text of a schema. InvalidSchemaError if it is not JSON, too long or too deep."""
    check_size(text)
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(text):
        first = text[token.start()]
        if first in "[{":
            depth += 1
            if depth > DEPTH_MAX:
                raise InvalidSchemaError(f"the schema is nested deeper than {DEPTH_MAX} levels; split it by references")
        elif first != '"':
            depth -= 1
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except ValueError as error:
        raise InvalidSchemaError(f"the schema is not JSON: {error}") from None


def write_json(value: Any, *, sort_keys: bool = False) -> str:
    """JSON without spaces, which is what schemas are compared by."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=sort_keys)


def _finite(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise ValueError(f"{text[:20]} is too large for a number")
    return number


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")
