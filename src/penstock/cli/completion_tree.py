"""The whole command line as a tree of words, read off the parsers: what a shell may offer at each place."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from importlib import import_module
from typing import Final

from penstock.cli.main import COMMANDS, module_of, parser


class Value(Enum):
    """What an option or argument takes, if its values cannot be listed."""

    NOTHING = "nothing"
    ANYTHING = "anything"
    FILE = "file"
    DIRECTORY = "directory"
    TOPIC = "topic"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class Option:
    """An option under all its names, or one positional argument, which has none."""

    names: tuple[str, ...]
    value: Value
    choices: tuple[str, ...]
    doc: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command, and those below it."""

    path: tuple[str, ...]
    doc: str
    options: tuple[Option, ...] = ()
    arguments: tuple[Option, ...] = ()
    below: tuple[Command, ...] = field(default=())

    def all(self) -> Iterator[Command]:
        """This command and every one below it."""
        yield self
        for command in self.below:
            yield from command.all()


_FILES: Final = {"FILE": Value.FILE, "DIR": Value.DIRECTORY, "TOPIC": Value.TOPIC}
_NAMED: Final = {"topic": Value.TOPIC, "group": Value.GROUP}


def command_tree() -> Command:
    """The tree of `penstock`."""
    below = tuple(_command(import_module(module_of(name)).parser(), (name,), summary) for name, summary in COMMANDS.items())
    return Command((), "", tuple(_options(parser(), ())), (), below)


def _command(parser: argparse.ArgumentParser, path: tuple[str, ...], doc: str) -> Command:
    nested = next((action for action in parser._actions if isinstance(action, argparse._SubParsersAction)), None)
    below: tuple[Command, ...] = ()
    if nested is not None:
        docs = {choice.dest: choice.help or "" for choice in nested._choices_actions}
        below = tuple(_command(inner, (*path, name), docs.get(name, "")) for name, inner in nested.choices.items())
    arguments = [action for action in parser._actions if not action.option_strings and action is not nested]
    return Command(path, doc, tuple(_options(parser, path)), tuple(_option(action, path) for action in arguments), below)


def _options(parser: argparse.ArgumentParser, path: tuple[str, ...]) -> Iterator[Option]:
    for action in parser._actions:
        if action.option_strings and action.help != argparse.SUPPRESS:
            yield _option(action, path)


def _option(action: argparse.Action, path: tuple[str, ...]) -> Option:
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    choices = tuple(map(str, action.choices)) if action.choices is not None else _listed(metavar)
    doc = (action.help or "").replace("%%", "%")
    return Option(tuple(action.option_strings), _value(action, metavar, path), choices, doc)


def _listed(metavar: str) -> tuple[str, ...]:
    """Options of settings write their choices as {one,other}."""
    return tuple(metavar[1:-1].split(",")) if metavar.startswith("{") and metavar.endswith("}") else ()


def _value(action: argparse.Action, metavar: str, path: tuple[str, ...]) -> Value:
    if action.nargs == 0:
        return Value.NOTHING
    if metavar in _FILES:
        return _FILES[metavar]
    is_new = path[-1:] == ("create",)
    if metavar == "NAME" and path and not is_new and (not action.option_strings or action.dest == "topic"):
        return Value.TOPIC if action.option_strings else _NAMED.get(path[0], Value.ANYTHING)
    return Value.ANYTHING
