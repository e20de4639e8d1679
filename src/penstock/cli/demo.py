"""`penstock demo`: live data through a broker, a Spark pipeline and a table, killed on the way, and checked at the end."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from penstock.cli.client_options import count, seconds
from penstock.cli.exit_codes import ExitCode

NEXT = """
Your turn:
  penstock up                                # a node: data in ./penstock-data, console at http://127.0.0.1:8080
  echo hello | penstock produce greetings    # in another terminal; any Kafka client will do
  penstock consume greetings --follow"""


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    made = argparse.ArgumentParser(
        prog="penstock demo",
        description="Start a broker on free ports, send it the events of a web shop with a reader that cannot keep up, run a "
        "Spark pipeline over them (totals by window back into a topic, a table on disk), kill -9 the broker on the way, and "
        "check that nothing was lost or doubled. Ends by itself, with 1 if something did not hold.",
    )
    made.add_argument("--keep", action="store_true", help="stay afterwards, with live data, until Ctrl-C")
    made.add_argument(
        "--seconds",
        type=seconds,
        default=16.0,
        metavar="SECONDS",
        help="how long events are sent, besides Spark's start (default: 16)",
    )
    made.add_argument("--rate", type=count, default=1000, metavar="N", help="how many events a second (default: 1000)")
    made.add_argument("--no-spark", action="store_true", help="leave the Spark pipeline out; so it is without the extra `spark`")
    made.add_argument("--dir", type=Path, help="where to work (default: a scratch directory that is removed afterwards)")
    made.add_argument(
        "--storage", action="store_true", help="instead, show the storage below: lost disks, flipped bits, fencing, garbage"
    )
    made.add_argument("--writer", action="store_true", help=argparse.SUPPRESS)
    return made


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
