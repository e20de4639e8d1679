"""Entry point of the `penstock` command: finds the subcommand, imports only that one and hands it its arguments.

Each subcommand is a module of this package with `run(argv) -> int` and its own argument parser. Nothing heavier than argparse is
imported here, so that `penstock --help` answers at once. How every command ends is decided here too.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from penstock import __version__
from penstock.cli.command_parser import CommandParser
from penstock.cli.exit_codes import ExitCode
from penstock.cli.failure import CommandError, as_command_error
from penstock.core.errors import PenstockError

COMMANDS: Final = {
    "up": "start a node",
    "status": "show cluster, listeners, rates, storage and alerts",
    "top": "watch topics, consumer groups and storage in the terminal",
    "storage": "list the disks of a node, and scrub them",
    "cluster": "create a cluster in etcd, show it, and rebuild it from the disks",
    "dev-cluster": "start etcd and several nodes on this machine",
    "node": "list the nodes of a cluster, drain and remove them",
    "tablet": "list the tablets of a cluster, and move them",
    "disk": "replace a disk of a cluster",
    "topic": "create, list, describe, alter, delete and trim topics",
    "queue": "list queues, register vital consumers, configure trimming",
    "group": "list, describe, reset and delete consumer groups",
    "schema": "list, show, register, check, delete and copy schemas",
    "stream": "publish, read, follow and acknowledge messages of subjects",
    "user": "create, list and delete users",
    "access": "manage access rules (ACLs)",
    "profile": "save servers under names, and choose one for all commands",
    "produce": "produce messages to a topic",
    "consume": "consume messages of a topic",
    "pipeline": "create, validate, run and watch Spark pipelines",
    "spark": "prepare Spark clusters",
    "demo": "send live data through a broker, Spark and a table, with a kill -9 in between",
    "doctor": "check this machine and its settings, and say how to fix problems",
    "completion": "print the completion script for bash, zsh or fish",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; wrong usage exits with 2, as argparse does."""
    _open_standard_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments:
        parser().print_help(sys.stderr)
        return ExitCode.USAGE
    # Every option of the command itself (--help, --version) ends the run, so the first word decides and the rest belongs to
    # the subcommand's own parser.
    _check_command(arguments[:1])
    command: str = parser().parse_args(arguments[:1]).command
    try:
        exit_code: int = import_module(module_of(command)).run(arguments[1:])
        sys.stdout.flush()
        return exit_code
    except (CommandError, PenstockError) as error:
        failure = as_command_error(error)
        print(f"penstock {command}: {failure}", file=sys.stderr)
        return failure.exit_code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        _drop_output()  # the reader of the pipe has closed it
        return ExitCode.OK
    except OSError as error:
        _drop_output()
        print(f"penstock {command}: {error}", file=sys.stderr)
        return ExitCode.FAILED


def _check_command(words: list[str]) -> None:
    """Exits with 2 and the nearest command if the first word is none."""
    for word in words:
        if not word.startswith("-") and word not in COMMANDS:
            from difflib import get_close_matches

            close = get_close_matches(word, COMMANDS, n=1)
            meant = f"did you mean {close[0]!r}? " if close else ""
            parser().error(f"there is no command {word!r}; {meant}`penstock --help` lists the commands")


def module_of(command: str) -> str:
    """The module of a subcommand."""
    return f"penstock.cli.{command.replace('-', '_')}"


def parser() -> argparse.ArgumentParser:
    """The parser of the first word."""
    command = CommandParser(prog="penstock", description="A persistent queue that never loses what it acknowledged.")
    command.add_argument("--version", action="version", version=f"penstock {__version__}")
    subcommands = command.add_subparsers(dest="command", required=True, metavar="command")
    for name, summary in COMMANDS.items():
        subcommands.add_parser(name, help=summary, add_help=False)
    return command


def _open_standard_streams() -> None:
    """Open /dev/null in place of standard streams that are closed: otherwise the next file or connection would get their number,
    and output meant for the stream would go there."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
            os.set_inheritable(nowhere, True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def _drop_output() -> None:
    """What is still buffered has nowhere to go; at exit it would only fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
