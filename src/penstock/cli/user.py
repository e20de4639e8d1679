"""`penstock user`: its subcommands and their options."""

from __future__ import annotations

import argparse

from penstock.cli.client_options import client_options, http_options, make_client
from penstock.cli.command_parser import CommandParser
from penstock.cli.http_api import make_api
from penstock.cli.output import Output


def parser() -> argparse.ArgumentParser:
    """A subparser for everything that can be done to a user."""
    command = CommandParser(
        prog="penstock user", description="Create, list and delete users, for nodes that require authentication."
    )
    actions = command.add_subparsers(dest="action", required=True, metavar="action")
    parent = client_options()

    def action(name: str, summary: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".", parents=[parent])

    setter = action("set", "create a user or change its password, which is read from the terminal, standard input or a file")
    setter.add_argument("name", metavar="NAME")
    setter.add_argument("--new-password-file", metavar="FILE", help="a file that contains the new password")
    action("list", "list users and their authentication mechanisms")
    remove = action("remove", "delete users; their open connections stay open")
    remove.add_argument("names", nargs="+", metavar="NAME")
    revoke = actions.add_parser(
        "revoke",
        help="revoke the tokens of users, who must sign in again",
        description="Revoke the tokens of users (those of YDB's clients), who must sign in again.",
        parents=[http_options()],
    )
    revoke.add_argument("names", nargs="+", metavar="NAME")
    return command


def run(argv: list[str]) -> int:
    """Carry out one subcommand."""
    arguments = parser().parse_args(argv)
    from penstock.cli.user_actions import ACTIONS, revoke

    if arguments.action == "revoke":
        return revoke(make_api(arguments), arguments, Output.of(arguments))
    with make_client(arguments) as client:
        return ACTIONS[arguments.action](client, arguments, Output.of(arguments))
