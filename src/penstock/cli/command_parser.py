"""The parser of a command: as argparse's, with examples at the end of its help; errors name the option that was meant."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import Final, NoReturn

USAGE_LINES_MAX: Final = 12  # a longer one would hide the error
_UNKNOWN: Final = "unrecognized arguments: "
_INVALID_CHOICE: Final = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")
_QUOTED: Final = re.compile(r"[\w.-]+")


class CommandParser(argparse.ArgumentParser):
    """Shows the examples of its command; parsers of subcommands are of this class too."""

    def format_help(self) -> str:
        """The usage, the options and the examples."""
        text = super().format_help()
        if not (shown := self.examples()):
            return text
        width = max(len(command) for command, _ in shown)
        lines = (f"  {command.ljust(width)}  # {remark}" if remark else f"  {command}" for command, remark in shown)
        return f"{text}\nexamples:\n" + "\n".join(lines) + "\n"

    def error(self, message: str) -> NoReturn:
        """Exit with 2 after saying what is wrong, and which option, subcommand or value was meant."""
        unknown = message.removeprefix(_UNKNOWN).partition(" ")[0].partition("=")[0]
        if message.startswith(_UNKNOWN) and unknown.startswith("--"):
            from difflib import get_close_matches

            options = set(_long_options(self))
            close = get_close_matches(unknown, options, n=1)
            message = f"there is no option {unknown}" + (f"; did you mean {close[0]}?" if close else "")
            if unknown in options:  # of another subcommand
                message = f"this subcommand has no option {unknown}; its --help lists those it has"
        if choice := _INVALID_CHOICE.search(message):
            from difflib import get_close_matches

            close = get_close_matches(choice[1], _QUOTED.findall(choice[2]), n=1)
            message += f"; did you mean {close[0]!r}?" if close else ""
        if self.format_usage().count("\n") <= USAGE_LINES_MAX:
            super().error(message)
        self.exit(2, f"{self.prog}: error: {message}; `{self.prog} --help` lists the options\n")

    def examples(self) -> list[tuple[str, str]]:
        """Commands to copy, each with what it does."""
        from penstock.cli.examples import EXAMPLES

        return EXAMPLES.get(self.prog.removeprefix("penstock").strip(), [])


def _long_options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The options of a parser and its subcommands: it is the outer parser that meets an option which none knows."""
    for action in parser._actions:
        yield from (option for option in action.option_strings if option.startswith("--"))
        if isinstance(action, argparse._SubParsersAction):
            for subcommand in action.choices.values():
                yield from _long_options(subcommand)
