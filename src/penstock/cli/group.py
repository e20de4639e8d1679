"""`penstock group`: its subcommands and their options."""

from __future__ import annotations

import argparse

from penstock.cli.client_options import client_options, make_client, partition
from penstock.cli.output import Output
from penstock.cli.positions import FORMS, position


def parser() -> argparse.ArgumentParser:
    """A subparser for everything that can be done to a group of consumers."""
    made = argparse.ArgumentParser(prog="penstock group", description="List, describe, reset and delete groups of consumers.")
    actions = made.add_subparsers(dest="action", required=True, metavar="action")
    parent = client_options()

    def action(name: str, summary: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".", parents=[parent])

    lister = action("list", "list groups with their kind and state")
    lister.add_argument("--prefix", default="", help="only those whose name begins so")
    lister.add_argument("--kind", choices=("classic", "consumer"), help="only those of this protocol; consumer is KIP-848")
    lister.add_argument("--state", metavar="STATE", help="only those in this state, such as Stable or Empty")
    describe = action("describe", "show members, positions, and how far behind they are in messages and in seconds")
    describe.add_argument("names", nargs="+", metavar="NAME")
    reset = action("reset", "set the positions of a group without members; only shows what would change unless --yes is given")
    reset.add_argument("name", metavar="NAME")
    where = reset.add_mutually_exclusive_group(required=True)
    where.add_argument("--to", type=position, metavar="POSITION", help=f"where to go on reading: {FORMS}")
    where.add_argument("--shift", type=int, metavar="N", help="so many messages forward, or back if below 0")
    reset.add_argument(
        "--topic", action="append", metavar="NAME", help="only here; may be repeated (default: wherever the group has a position)"
    )
    reset.add_argument("--partition", type=partition, action="append", metavar="N", help="only here; may be repeated")
    reset.add_argument("-y", "--yes", action="store_true", help="do it; otherwise it is only shown what would be done")
    delete = action("delete", "delete groups without members, with their positions")
    delete.add_argument("names", nargs="+", metavar="NAME")
    delete.add_argument("--if-exists", action="store_true", help="a group that is not there is not an error")
    delete.add_argument("-y", "--yes", action="store_true", help="do not ask, on a terminal, whether it is meant")
    return made


def run(argv: list[str]) -> int:
    """Carry out one subcommand."""
    arguments = parser().parse_args(argv)
    from penstock.cli.group_actions import ACTIONS

    with make_client(arguments) as client:
        return ACTIONS[arguments.action](client, arguments, Output(as_json=arguments.output == "json"))
