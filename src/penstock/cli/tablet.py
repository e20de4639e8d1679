"""`penstock tablet`: which node owns which tablet, and moving one to another node."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.command_parser import CommandParser
from penstock.cli.etcd_options import ask_leader, etcd_options, run_connected, show_answer
from penstock.cli.output import Output

if TYPE_CHECKING:
    from penstock.coordination import Coordination

TIMEOUT_S: Final = 30.0


def parser() -> argparse.ArgumentParser:
    """Its subcommands."""
    command = CommandParser(prog="penstock tablet", description="List the tablets of topics in a cluster, and move them.")
    actions = command.add_subparsers(dest="action", required=True, metavar="action")
    parent = etcd_options()
    listing = actions.add_parser(
        "list",
        help="list tablets with their topic, node and state",
        description="List tablets: the topic, how many of its partitions, the storage group, the node that owns it, its state "
        "(up, down, moving, or unknown if the node has not told), the node it moves to, its generation, and why it is down.",
        parents=[parent],
    )
    listing.add_argument("--node", type=int, metavar="NODE", default=None, help="only tablets that this node owns")
    listing.add_argument("--topic", metavar="TOPIC", default=None, help="only tablets of this topic")
    move = actions.add_parser(
        "move",
        help="hand a tablet over to another node",
        description="Hand a tablet over to another node: it stops where it is after the writes in flight, and starts there. It "
        "is not moved for balance from then on, until that node is drained or lost.",
        parents=[parent],
    )
    move.add_argument("tablet", type=int, metavar="TABLET", help="the id of the tablet; `penstock tablet list` shows them")
    move.add_argument("node", type=int, metavar="NODE", help="the id of the node")
    move.add_argument(
        "--timeout-s", metavar="SECONDS", type=float, default=TIMEOUT_S, help=f"how long to wait for it (default: {TIMEOUT_S:g})"
    )
    return command


def run(argv: list[str]) -> int:
    """Carry out one subcommand."""
    arguments = parser().parse_args(argv)
    return run_connected(_list if arguments.action == "list" else _move, arguments)


async def _list(coordination: Coordination, arguments: argparse.Namespace, output: Output) -> None:
    wanted = {key: str(value) for key, value in (("node", arguments.node), ("topic", arguments.topic)) if value is not None}
    tablets: list[dict[str, Any]] = []
    while True:
        after = {"after": str(tablets[-1]["tablet"])} if tablets else {}
        page = json.loads(await ask_leader(coordination, "list-tablets", wanted | after, TIMEOUT_S))
        tablets += page["tablets"]
        if not page["more"]:
            break
    if output.as_json:
        output.document(tablets)
        return
    columns = ("tablet", "topic", "partitions", "group", "node", "state", "to", "generation", "trouble")
    output.rows(columns, [tuple(tablet[column] for column in columns) for tablet in tablets])


async def _move(coordination: Coordination, arguments: argparse.Namespace, output: Output) -> None:
    wanted = {"tablet": str(arguments.tablet), "node": str(arguments.node)}
    show_answer(output, await ask_leader(coordination, "move-tablet", wanted, arguments.timeout_s))
