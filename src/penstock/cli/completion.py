"""`penstock completion`: a script by which a shell completes the command line."""

from __future__ import annotations

import argparse
import sys

from penstock.cli.command_parser import CommandParser
from penstock.cli.exit_codes import ExitCode

SHELLS = ("bash", "zsh", "fish")


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    command = CommandParser(
        prog="penstock completion",
        description="Print a script that completes commands, options and their values, and names of topics and groups if a node "
        "answers. For bash: penstock completion bash > ~/.local/share/bash-completion/completions/penstock. For zsh: write it as "
        "_penstock into a folder of $fpath. For fish: penstock completion fish > ~/.config/fish/completions/penstock.fish.",
    )
    command.add_argument("shell", choices=SHELLS)
    return command


def run(argv: list[str]) -> int:
    """Print the script of a shell."""
    shell = parser().parse_args(argv).shell
    from penstock.cli.completion_scripts import SCRIPTS
    from penstock.cli.completion_tree import command_tree

    sys.stdout.write(SCRIPTS[shell](command_tree()))
    return ExitCode.OK
