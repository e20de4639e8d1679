"""Conversations with a state machine, kept in text files: what is said to it, a line of dashes, and what it answers.

    # A comment says what is about to happen, and why.
    join ann
    ----
    ann waits
    state Empty -> PreparingRebalance

A file is a series of blocks. The lines before `----` are commands, carried out one after another; those after it, up to a blank
line, are what all of them answer. A command is words: a verb, arguments, and options of the form name=value. A line that begins
with `#` is a comment.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

RULER = "----"


@dataclass(frozen=True, slots=True)
class Command:
    """One line that is said: a verb, its arguments, and options by name."""

    verb: str
    arguments: tuple[str, ...]
    options: dict[str, str]

    @classmethod
    def parse(cls, line: str) -> Command:
        """Returns the command that a line spells."""
        verb, *words = shlex.split(line)
        named = [word.partition("=") for word in words if "=" in word]
        return cls(verb, tuple(word for word in words if "=" not in word), {name: value for name, _, value in named})

    @property
    def subject(self) -> str:
        """The first argument: who or what the command is about."""
        return self.arguments[0]

    def words(self, name: str) -> list[str]:
        """Returns the value of an option that is a list: a,b,c. An option that is left out is an empty list."""
        return [word for word in self.options.get(name, "").split(",") if word]

    def number(self, name: str, default: int) -> int:
        """Returns the value of an option that is a number."""
        return int(self.options.get(name, default))

    def seconds(self, name: str, default: float) -> float:
        """Returns the value of an option that is a time: 10s."""
        return seconds_of(self.options[name]) if name in self.options else default


class Block(NamedTuple):
    """Commands, and the line of the file after which their answer stands."""

    commands: tuple[Command, ...]
    ruler_at: int


class Script:
    """One file: its blocks, and the text around them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines = path.read_text(encoding="utf-8").splitlines()
        self.blocks = list(self._parse())

    def rendered(self, answers: Iterable[list[str]]) -> str:
        """Returns the text of the file with these answers in place of the ones it has."""
        out: list[str] = []
        begin = 0
        for block, answer in zip(self.blocks, answers, strict=True):
            if any(not line.strip() for line in answer):
                raise ValueError(f"{self.path}:{block.ruler_at + 1}: an answer has a blank line, which would end it")
            out += [*self._lines[begin : block.ruler_at + 1], *answer]
            begin = self._answer_end(block.ruler_at)
        return "\n".join([*out, *self._lines[begin:]]) + "\n"

    def _parse(self) -> Iterator[Block]:
        commands: list[Command] = []
        at = 0
        while at < len(self._lines):
            line = self._lines[at].strip()
            if line == RULER:
                yield Block(tuple(commands), at)
                commands = []
                at = self._answer_end(at)
                continue
            if line and not line.startswith("#"):
                commands.append(Command.parse(line))
            at += 1
        if commands:
            raise ValueError(f"{self.path}: the commands at its end have no line {RULER}")

    def _answer_end(self, ruler_at: int) -> int:
        return next((at for at in range(ruler_at, len(self._lines)) if not self._lines[at].strip()), len(self._lines))


def seconds_of(text: str) -> float:
    """Returns a time in seconds: 10s, 2m or 500ms."""
    for unit, seconds in (("ms", 0.001), ("s", 1.0), ("m", 60.0)):
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * seconds
    raise ValueError(f"{text!r} is not a time such as 10s, 2m or 500ms")


def unknown(command: Command) -> ValueError:
    """Returns the error for a verb that a conversation does not know."""
    return ValueError(f"no such command: {command.verb}")
