"""The tokens of a .proto file, and a text that is made of them alone: without comments, and with one way to place spaces."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.schemas.errors import InvalidSchemaError

TOKENS_MAX: Final = 200_000
_TOKEN: Final = re.compile(
    r"(?P<space>(?:\s+|//[^\n]*+|/\*.*?\*/)++)"
    r"|(?P<string>\"(?:[^\"\\\n]|\\.)*+\"|'(?:[^'\\\n]|\\.)*+')"
    r"|(?P<number>(?:0[xX][0-9a-fA-F]+|[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?)[fF]?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<symbol>[;{}()\[\]<>=,.:+\-/])",
    re.DOTALL,
)
_CLOSE_UP_BEFORE: Final = frozenset(";,)]>:(<")
_CLOSE_UP_AFTER: Final = frozenset("([<-/")


class Token(NamedTuple):
    """A piece of text; `kind` is string, number, name, symbol, or end."""

    kind: str
    text: str
    line: int
    is_adjacent: bool = False  # to the token before


def tokens_of(text: str) -> list[Token]:
    """All tokens of a text, and an end. InvalidSchemaError if something else is in it."""
    found: list[Token] = []
    at, line, is_adjacent = 0, 1, False
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise InvalidSchemaError(f"line {line}: {text[at : at + 20]!r} has no place in a .proto file")
        is_space = match.lastgroup == "space"
        if not is_space:
            found.append(Token(match.lastgroup, match.group(), line, is_adjacent))
            if len(found) > TOKENS_MAX:
                raise InvalidSchemaError(f"the schema has more than {TOKENS_MAX} words and signs; split it by imports")
        is_adjacent = not is_space
        line += match.group().count("\n")
        at = match.end()
    return [*found, Token("end", "", line)]


def formatted(tokens: Iterable[Token]) -> str:
    """Tokens as a text that people can read, with one statement a line."""
    lines: list[str] = []
    line, depth, before = "", 0, ""
    for token in tokens:
        text = token.text
        if text == "}":
            depth = max(depth - 1, 0)
        if line:
            line += _joint(before, token) + text
        elif text in (";", ",") and lines:
            line = lines.pop() + text  # behind the brace that it ends
        else:
            line = "  " * depth + text
        if text in (";", "{", "}"):
            lines.append(line)
            line = ""
        depth += text == "{"
        before = text
    return "\n".join([*lines, line] if line else lines) + "\n"


def _joint(before: str, token: Token) -> str:
    """What stands between two tokens of a line."""
    if token.text == "." or before == ".":
        return "" if token.is_adjacent or before == "." else " "
    if before in ("=", "returns", ",") and token.text == "(":
        return " "
    return "" if token.text in _CLOSE_UP_BEFORE or before in _CLOSE_UP_AFTER else " "
