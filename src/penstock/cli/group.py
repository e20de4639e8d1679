"""`penstock group`: its subcommands and their options."""

from __future__ import annotations

import argparse

from penstock.cli.client_options import client_options, make_client, partition
from penstock.cli.command_parser import CommandParser
from penstock.cli.output import Output
from penstock.cli.positions import FORMS, position


def parser() -> argparse.ArgumentParser:
    """A subparser for everything that can be done to a group of consumers."""
    command = CommandParser(prog="penstock group", description="List, describe, reset and delete consumer groups.")
    actions = command.add_subparsers(dest="action", required=True, metavar="action")
    parent = client_options()

    def action(name: str, summary: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".", parents=[parent])

    lister = action("list", "list groups with their protocol, state and lag")
    lister.add_argument("--prefix", default="", help="only names with this prefix")
    lister.add_argument(
        "--kind",
        choices=("classic", "consumer", "yt", "stream"),
        help="only groups of this protocol; consumer is KIP-848, yt a consumer of YT, stream a durable consumer of streams",
    )
    lister.add_argument("--state", metavar="STATE", help="only groups in this state, such as Stable or Empty")
    describe = action("describe", "show members, committed offsets, and the lag in messages and seconds")
    describe.add_argument("names", nargs="+", metavar="NAME")
    reset = action("reset", "reset the committed offsets of a group without members; a dry run unless --yes is given")
    reset.add_argument("name", metavar="NAME")
    where = reset.add_mutually_exclusive_group(required=True)
    where.add_argument("--to", type=position, metavar="POSITION", help=f"the new position: {FORMS}")
    where.add_argument("--shift", type=int, metavar="N", help="shift by N messages; a negative N shifts back")
    reset.add_argument(
        "--topic",
        action="append",
        metavar="NAME",
        help="only this topic; may be repeated (default: every topic the group has committed offsets for)",
    )
    reset.add_argument("--partition", type=partition, action="append", metavar="N", help="only this partition; may be repeated")
    reset.add_argument(
        "-y", "--yes", action="store_true", help="apply the reset; without it the command only shows what would change"
    )
    delete = action("delete", "delete groups without members, and their committed offsets")
    delete.add_argument("names", nargs="+", metavar="NAME")
    delete.add_argument("--if-exists", action="store_true", help="ignore groups that do not exist")
    delete.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")
    return command


def run(argv: list[str]) -> int:
    """Carry out one subcommand."""
    arguments = parser().parse_args(argv)
    from penstock.cli.group_actions import ACTIONS

    with make_client(arguments) as client:
        return ACTIONS[arguments.action](client, arguments, Output.of(arguments))
