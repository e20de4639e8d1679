"""The parser of a command: as argparse's, with examples at the end of its help."""

from __future__ import annotations

import argparse


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

    def examples(self) -> list[tuple[str, str]]:
        """Commands to copy, each with what it does."""
        from penstock.cli.examples import EXAMPLES

        return EXAMPLES.get(self.prog.removeprefix("penstock").strip(), [])
