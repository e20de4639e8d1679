"""Kinds of values of a configuration: each checks a value and says what it allows, which editors show before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.broker.errors import InvalidConfigError

INT64_MAX: Final = (1 << 63) - 1

Check = Callable[[str], str]
"""Returns a value as it is stored; raises InvalidConfigError for an invalid one."""


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """A whole number within bounds. `unlimited` is the number that means: no limit."""

    low: int
    high: int = INT64_MAX
    unlimited: int | None = None

    def __call__(self, value: str) -> str:
        try:
            number = int(value)
        except ValueError:
            raise InvalidConfigError(f"{value!r} is not a whole number") from None
        if not self.low <= number <= self.high:
            raise InvalidConfigError(f"{number} is not within {self.low}..{self.high}")
        return str(number)


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of some words."""

    allowed: tuple[str, ...]

    def __call__(self, value: str) -> str:
        if value not in self.allowed:
            raise InvalidConfigError(f"{value!r} is not one of: {', '.join(self.allowed)}")
        return value


@dataclass(frozen=True, slots=True)
class SomeOf:
    """Any of some words, with commas between them; also none."""

    allowed: tuple[str, ...]

    def __call__(self, value: str) -> str:
        words = list(dict.fromkeys(name.strip() for name in value.split(","))) if value.strip() else []
        if set(words) - set(self.allowed):
            raise InvalidConfigError(
                f"{value!r} is not one of: {', '.join(self.allowed)}, both with a comma between them, or nothing"
            )
        return ",".join(words)


def ratio(value: str) -> str:
    """Checks a number within 0..1."""
    try:
        number = float(value)
    except ValueError:
        raise InvalidConfigError(f"{value!r} is not a number") from None
    if not 0 <= number <= 1:
        raise InvalidConfigError(f"{value} is not within 0..1")
    return value


def gzip_level(value: str) -> str:
    """Checks a compression level of gzip; -1 is its default."""
    level = WholeNumber(-1, 9)(value)
    if level == "0":
        raise InvalidConfigError("0 is not within 1..9, nor -1")
    return level


BOOLEAN: Final = OneOf(("true", "false"))
