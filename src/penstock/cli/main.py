"""Entry point of the `penstock` command: finds the subcommand, imports only that one and hands it its arguments.

Each subcommand is a module of this package with `run(argv) -> int`, its own argument parser included. Nothing heavier than
argparse is imported here, so that `penstock --help` answers at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from penstock import __version__

COMMANDS: Final = {
    "demo": "show the storage surviving what it should survive",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; wrong usage exits with 2, as argparse does."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    # Every option of the command itself (--help, --version) ends the run, so the first word decides and the rest belongs to
    # the subcommand's own parser.
    command: str = _parser().parse_args(arguments[:1]).command
    exit_code: int = import_module(f"penstock.cli.{command}").run(arguments[1:])
    return exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="penstock", description="A persistent queue that never loses what it acknowledged.")
    parser.add_argument("--version", action="version", version=f"penstock {__version__}")
    subcommands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, summary in COMMANDS.items():
        subcommands.add_parser(name, help=summary, add_help=False)
    return parser


if __name__ == "__main__":
    sys.exit(main())
