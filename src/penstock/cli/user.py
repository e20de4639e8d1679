"""`penstock user`: its subcommands and their options."""

from __future__ import annotations

import argparse
from typing import Any

from penstock.cli.client_options import client_options, http_options, make_client
from penstock.cli.command_parser import CommandParser
from penstock.cli.http_api import make_api
from penstock.cli.output import Output
from penstock.client.units import duration_ms


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
    _token_actions(actions)
    return command


def _token_actions(actions: Any) -> None:
    """Those that go over HTTP: Kafka's protocol has no such tokens."""
    parent = http_options()

    def action(name: str, summary: str) -> argparse.ArgumentParser:
        description = summary[0].upper() + summary[1:] + "."
        parser: argparse.ArgumentParser = actions.add_parser(name, help=summary, description=description, parents=[parent])
        return parser

    tokens = action("tokens", "list the valid tokens: sessions of browsers, YDB clients, and those created for programs")
    tokens.add_argument("names", nargs="*", metavar="NAME", help="only those of these users")
    issue = action("issue-token", "create a token for a program, and print it; it is not stored and cannot be shown again")
    issue.add_argument("name", metavar="NAME", help="the user that the program is to act as")
    issue.add_argument("--for", dest="purpose", required=True, metavar="TEXT", help="what the token is for, shown in lists")
    issue.add_argument(
        "--expires-in",
        dest="life_ms",
        type=duration_ms,
        default="90d",
        metavar="TIME",
        help="how long it is valid, such as 12h or 90d, up to 366d (default: %(default)s)",
    )
    revoke_token = action("revoke-token", "revoke tokens by their ids")
    revoke_token.add_argument("ids", nargs="+", metavar="ID", help="as `penstock user tokens` shows it")
    revoke = action("revoke", "revoke all tokens of users, who must sign in again")
    revoke.add_argument("names", nargs="+", metavar="NAME")


def run(argv: list[str]) -> int:
    """Carry out one subcommand."""
    arguments = parser().parse_args(argv)
    from penstock.cli.user_actions import ACTIONS
    from penstock.cli.user_tokens import TOKEN_ACTIONS

    if arguments.action in TOKEN_ACTIONS:
        return TOKEN_ACTIONS[arguments.action](make_api(arguments), arguments, Output.of(arguments))
    with make_client(arguments) as client:
        return ACTIONS[arguments.action](client, arguments, Output.of(arguments))
