"""A small subset of YT's query language: columns from a table, where columns compare with constants, order by, limit. Pure.

* from [//path] where queue_path = "//q" and [$row_index] >= 10 order by offset desc limit 5
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.gateway.yt.errors import GENERIC, YtError

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<number>-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?u?)
    | \[(?P<bracket>[^\]]*)\]
    | (?P<word>[A-Za-z_$][A-Za-z0-9_$]*)
    | (?P<sign><=|>=|!=|<>|[=<>*,()#%])
    )""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(.)")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_KEYWORDS = frozenset({"from", "where", "order", "by", "limit", "offset", "and", "as", "asc", "desc", "in"})


class Condition(NamedTuple):
    """A column compared with a constant or with a list of constants."""

    column: str
    sign: str
    value: Any

    def holds(self, row: dict[str, Any]) -> bool:
        """Whether a row matches. A null matches only a comparison with null."""
        actual = row.get(self.column)
        if self.sign == "in":
            return actual in self.value
        if actual is None or self.value is None:
            return (
                (actual is None) == (self.value is None)
                if self.sign == "="
                else self.sign in ("!=", "<>") and actual != self.value
            )
        try:
            return _COMPARE[self.sign](actual, self.value)
        except TypeError as error:
            raise YtError(GENERIC, f"{self.column} cannot be compared with {self.value!r}") from error


class Query(NamedTuple):
    """A parsed query. `columns` holds the name and the alias of each, or is None for all columns."""

    columns: tuple[tuple[str, str], ...] | None
    path: str
    conditions: tuple[Condition, ...]
    order_by: tuple[tuple[str, bool], ...]
    offset: int
    limit: int | None

    def bounds(self, column: str) -> tuple[int, int | None]:
        """The lowest and the highest integer that the conditions allow for a column."""
        low, high = 0, None
        for condition in self.conditions:
            if condition.column != column or not isinstance(condition.value, int):
                continue
            if condition.sign in ("=", ">=", ">"):
                low = max(low, condition.value + (condition.sign == ">"))
            if condition.sign in ("=", "<=", "<"):
                top = condition.value - (condition.sign == "<")
                high = top if high is None else min(high, top)
        return low, high

    def run(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Filter, sort and cut rows."""
        matching = [row for row in rows if all(condition.holds(row) for condition in self.conditions)]
        for column, descending in reversed(self.order_by):
            matching.sort(key=lambda row: (row.get(column) is not None, row.get(column)), reverse=descending)
        matching = matching[self.offset :] if self.limit is None else matching[self.offset : self.offset + self.limit]
        if self.columns is None:
            return matching
        return [{alias: row.get(name) for name, alias in self.columns} for row in matching]


class _TokenReader:
    """The tokens of a query, read one by one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        at = 0
        text = text.strip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None or match.lastgroup is None:
                raise YtError(GENERIC, f"the query cannot be parsed from {text[at : at + 20]!r} on")
            self._tokens.append((match.lastgroup, match[match.lastgroup]))
            at = match.end()
        self._at = 0

    def peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "")

    def take(self) -> tuple[str, str]:
        token = self.peek()
        self._at += 1
        return token

    def accept(self, word: str) -> bool:
        kind, text = self.peek()
        if kind in ("word", "sign") and text.lower() == word:
            self._at += 1
            return True
        return False

    def expect(self, word: str) -> None:
        if not self.accept(word):
            raise self.unexpected(word)

    def unexpected(self, wanted: str) -> YtError:
        return YtError(GENERIC, f"the query has {self.peek()[1] or 'its end'!r} where {wanted} is expected: {self._text}")

    def column(self) -> str:
        kind, text = self.peek()
        if kind not in ("word", "bracket") or (kind == "word" and text.lower() in _KEYWORDS - {"offset"}):
            raise self.unexpected("a column")
        self.take()
        return text

    def integer(self) -> int:
        kind, text = self.peek()
        if kind != "number" or not text.isdigit():
            raise self.unexpected("a number")
        self.take()
        return int(text)

    def constant(self) -> Any:
        kind, text = self.take()
        if kind == "string":
            return _ESCAPE.sub(r"\1", text[1:-1])
        if kind == "number":
            return float(text) if set(text) & set(".eE") else int(text.removesuffix("u"))
        if (kind, text) == ("sign", "#") or (kind == "word" and text.lower() == "null"):
            return None
        if (kind, text) == ("sign", "%"):
            kind, text = self.take()
        if kind == "word" and text.lower() in ("true", "false"):
            return text.lower() == "true"
        self._at -= 1
        raise self.unexpected("a constant")


def parse_query(text: str) -> Query:
    """Parse a query."""
    tokens = _TokenReader(text)
    columns = _columns(tokens)
    tokens.expect("from")
    kind, path = tokens.take()
    if kind not in ("bracket", "string"):
        raise YtError(GENERIC, f"the query must name its table as [//path], not {path!r}")
    conditions: list[Condition] = []
    if tokens.accept("where"):
        conditions += _conditions(tokens)
    order_by: list[tuple[str, bool]] = []
    if tokens.accept("order"):
        tokens.expect("by")
        order_by.append(_order(tokens))
        while tokens.accept(","):
            order_by.append(_order(tokens))
    offset = tokens.integer() if tokens.accept("offset") else 0
    limit = tokens.integer() if tokens.accept("limit") else None
    if tokens.peek()[0] != "end":
        raise tokens.unexpected("its end (supported are filters with and, order by, and limit)")
    return Query(columns, path.strip('"'), tuple(conditions), tuple(order_by), offset, limit)


def _columns(tokens: _TokenReader) -> tuple[tuple[str, str], ...] | None:
    if tokens.accept("*"):
        return None
    columns: list[tuple[str, str]] = []
    while True:
        name = tokens.column()
        columns.append((name, tokens.column() if tokens.accept("as") else name))
        if not tokens.accept(","):
            return tuple(columns)


def _conditions(tokens: _TokenReader) -> list[Condition]:
    conditions: list[Condition] = []
    while True:
        if tokens.accept("("):
            conditions += _conditions(tokens)
            tokens.expect(")")
        else:
            conditions.append(_condition(tokens))
        if not tokens.accept("and"):
            return conditions


def _condition(tokens: _TokenReader) -> Condition:
    column = tokens.column()
    if tokens.accept("in"):
        tokens.expect("(")
        values = [tokens.constant()]
        while tokens.accept(","):
            values.append(tokens.constant())
        tokens.expect(")")
        return Condition(column, "in", values)
    kind, sign = tokens.take()
    if kind != "sign" or sign not in _COMPARE:
        raise tokens.unexpected("a comparison")
    return Condition(column, sign, tokens.constant())


def _order(tokens: _TokenReader) -> tuple[str, bool]:
    column = tokens.column()
    descending = tokens.accept("desc")
    if not descending:
        tokens.accept("asc")
    return column, descending
