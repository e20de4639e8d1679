"""`penstock demo`: live data through a broker, a Spark pipeline and a table, killed on the way, and checked at the end."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from penstock.cli.client_options import count, seconds
from penstock.cli.command_parser import CommandParser
from penstock.cli.exit_codes import ExitCode

NEXT = """
Your turn:
  penstock up                                # a node: data in ./penstock-data, console at http://127.0.0.1:8080
  echo hello | penstock produce greetings    # in another terminal; any Kafka client will do
  penstock consume greetings --follow"""


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    command = CommandParser(
        prog="penstock demo",
        description="Start a broker on free ports, produce the events of a web shop, run a slow consumer and Spark pipelines "
        "over them (totals by window into a topic, all events into a table), kill -9 the broker in between, and "
        "check that nothing was lost or duplicated. Exits with 1 if a check failed.",
    )
    command.add_argument("--keep", action="store_true", help="keep running afterwards, with live data, until Ctrl-C")
    command.add_argument(
        "--seconds",
        type=seconds,
        default=16.0,
        metavar="SECONDS",
        help="how long to produce events, not counting Spark's start (default: 16)",
    )
    command.add_argument("--rate", type=count, default=1000, metavar="N", help="events per second (default: 1000)")
    command.add_argument(
        "--no-spark", action="store_true", help="skip the Spark pipelines, as is done when the extra `spark` is not installed"
    )
    command.add_argument("--dir", type=Path, help="working directory (default: a temporary directory, removed afterwards)")
    command.add_argument(
        "--storage",
        action="store_true",
        help="demonstrate the storage layer instead: disk loss, bit flips, fencing, garbage collection",
    )
    command.add_argument("--writer", action="store_true", help=argparse.SUPPRESS)
    return command


def run(argv: list[str]) -> int:
    """Run the demo; 0 if everything held."""
    arguments = parser().parse_args(argv)
    if arguments.dir is not None:
        arguments.dir.mkdir(parents=True, exist_ok=True)
        return _run(arguments.dir.absolute(), arguments)
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as scratch:
        return _run(Path(scratch), arguments)


def _run(folder: Path, arguments: argparse.Namespace) -> int:
    if arguments.storage:
        from penstock.cli.demo_storage import show_storage, write_until_killed

        return write_until_killed(folder) if arguments.writer else show_storage(folder)
    from penstock.cli.demo_show import Show

    held = Show(folder, arguments).run()
    print(NEXT)
    return ExitCode.OK if held else ExitCode.FAILED
