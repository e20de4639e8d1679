"""A small language to filter messages by: conditions on fields, joined by `and`.

    value.customer = anna and value.total > 100 and header.source ~ "web" and not value.paid = true

A field is key, value, value.PATH of a JSON value (names and [index]), header.NAME, partition, offset, timestamp (ms) or size. The
operators are =, !=, <, <=, >, >= and ~, which means: contains, ignoring case. A field alone means: it is there. The expression is
compiled once; a message costs at most one decoding of its JSON value.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from penstock.server.http.errors import MalformedRequestError
from penstock.server.http.stored_records import Record

TERMS_MAX: Final = 20
JSON_BYTES_MAX: Final = 1 << 20  # larger values have no fields

_TOKEN: Final = re.compile(r"""\s*(?:("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(<=|>=|!=|=|<|>|~)|([^\s=<>!~"']+))""")
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d{1,6})\]")
_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_OPERATORS: Final = ("=", "!=", *_COMPARE, "~")
_MISSING: Final = object()

Predicate = Callable[[Record], bool]


class _Token(NamedTuple):
    text: str
    is_quoted: bool
    at: int


def compile_filter(text: str) -> Predicate:
    """Compiles an expression. Raises MalformedRequestError with the place of a mistake."""
    tokens = _tokens(text)
    terms: list[Predicate] = []
    at = 0
    while at < len(tokens):
        if terms:
            if tokens[at].text != "and" or tokens[at].is_quoted:
                raise _mistake(text, tokens[at].at, "expected 'and'")
            at += 1
        if len(terms) == TERMS_MAX:
            raise MalformedRequestError(f"the filter has more than {TERMS_MAX} conditions")
        term, at = _term(text, tokens, at)
        terms.append(term)
    if not terms:
        raise MalformedRequestError("the filter is empty")
    return lambda record: all(term(record) for term in terms)


def _tokens(text: str) -> list[_Token]:
    tokens = []
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise _mistake(text, at, "expected a field, an operator or a value; is a quote missing?")
        quoted, sign, word = match.groups()
        start = match.end() - len(quoted or sign or word)
        plain = re.sub(r"\\(.)", r"\1", quoted[1:-1]) if quoted else sign or word
        tokens.append(_Token(plain, quoted is not None, start))
        at = match.end()
    return tokens


def _term(text: str, tokens: list[_Token], at: int) -> tuple[Predicate, int]:
    """One condition, and where the next one begins."""
    is_negated = at < len(tokens) and tokens[at].text == "not"
    at += is_negated
    if at >= len(tokens):
        raise _mistake(text, len(text), "expected a field")
    read = _field(text, tokens[at])
    at += 1
    if at >= len(tokens) or tokens[at].text not in _OPERATORS or tokens[at].is_quoted:
        return (lambda record: (read(record) in (_MISSING, None)) == is_negated), at
    sign = tokens[at].text
    if at + 1 >= len(tokens):
        raise _mistake(text, len(text), f"expected a value after {sign}")
    test = _test(text, sign, tokens[at + 1])
    return (lambda record: test(read(record)) != is_negated), at + 2


def _test(text: str, sign: str, token: _Token) -> Callable[[Any], bool]:
    wanted = token.text if token.is_quoted else _literal(token.text)
    if sign == "~":
        needle = token.text.lower()
        return lambda value: value is not _MISSING and needle in _as_text(value).lower()
    if sign in ("=", "!="):
        is_equal = sign == "="
        return lambda value: _equals(value, wanted, token.text) == is_equal
    compare = _COMPARE[sign]
    if isinstance(wanted, bool) or wanted is None:
        raise _mistake(text, token.at, f"{sign} compares numbers and texts, not {token.text}")

    def ordered(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            return False
        number = _literal(value) if isinstance(value, str) and not isinstance(wanted, str) else value
        return isinstance(number, str) == isinstance(wanted, str) and compare(number, wanted)

    return ordered


def _field(text: str, token: _Token) -> Callable[[Record], Any]:
    name = token.text
    if name in ("partition", "offset", "timestamp", "size"):
        return operator.attrgetter(name)
    if name == "key":
        return lambda record: _octets(record.key)
    if name == "value":
        return lambda record: _octets(record.value)
    if name.startswith("header."):
        header = name.removeprefix("header.")
        return lambda record: next((_octets(value) for found, value in record.headers if found == header), _MISSING)
    if name.startswith(("value.", "value[", "key.", "key[")):
        part, steps = ("key", name[3:]) if name.startswith("key") else ("value", name[5:])
        path = [int(index) if index else step for step, index in _STEP.findall(steps)]
        if "".join(match[0] for match in _STEP.finditer(steps)) != steps:
            raise _mistake(text, token.at, f"{name!r} is not a path such as value.items[0].id")
        return lambda record: _inside(getattr(record, part), path)
    raise _mistake(
        text, token.at, f"unknown field {name!r}; use key, value, value.PATH, header.NAME, partition, offset, timestamp"
    )


def _inside(raw: bytes | None, path: list[str | int]) -> Any:
    if raw is None or len(raw) > JSON_BYTES_MAX:
        return _MISSING
    try:
        value = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return _MISSING
    for step in path:
        if not _has(value, step):
            return _MISSING
        value = value[step]
    return value


def _has(value: Any, step: str | int) -> bool:
    if isinstance(step, int):
        return isinstance(value, list) and step < len(value)
    return isinstance(value, dict) and step in value


def _equals(value: Any, wanted: Any, text: str) -> bool:
    """Compares by the type of the value: a text that looks like a number is a text."""
    if value is _MISSING:
        return False
    if isinstance(value, str):
        return value == text
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    return bool(value == wanted)


def _literal(text: str) -> Any:
    """A number, true, false or null; otherwise the text."""
    try:
        value = msgspec.json.decode(text.encode())
    except msgspec.DecodeError:
        return text
    return text if isinstance(value, list | dict | str) else value


def _octets(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode(errors="replace")


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _mistake(text: str, at: int, what: str) -> MalformedRequestError:
    return MalformedRequestError(f"the filter is wrong at character {at + 1} ({text[at : at + 20]!r}): {what}")
