"""`penstock access`: its subcommands and their options."""

from __future__ import annotations

import argparse
from typing import Final

from penstock.cli.client_options import client_options, make_client
from penstock.cli.command_parser import CommandParser
from penstock.cli.output import Output

OPERATIONS: Final = {
    "all": 2,
    "read": 3,
    "write": 4,
    "create": 5,
    "delete": 6,
    "alter": 7,
    "describe": 8,
    "cluster-action": 9,
    "describe-configs": 10,
    "alter-configs": 11,
    "idempotent-write": 12,
    "two-phase-commit": 15,
}


def parser() -> argparse.ArgumentParser:
    """A subparser for everything that can be done to access rules."""
    command = CommandParser(
        prog="penstock access",
        description="Manage access rules (ACLs). An operation that no rule allows is denied; a deny rule overrides every "
        "allow rule.",
    )
    actions = command.add_subparsers(dest="action", required=True, metavar="action")
    parent = client_options()

    def action(name: str, summary: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".", parents=[parent])

    for name, summary in (
        ("allow", "allow a user an operation"),
        ("deny", "deny a user an operation, overriding every allow rule"),
    ):
        rule = action(name, summary)
        _resources(rule, required=True)
        rule.add_argument("who", metavar="USER", help="the user; * for all users")
        rule.add_argument(
            "operations", nargs="+", choices=OPERATIONS, metavar="OPERATION", help=f"one of {', '.join(OPERATIONS)}"
        )
    for name, summary in (("list", "list rules"), ("remove", "delete all matching rules")):
        chosen = action(name, summary)
        _resources(chosen, required=False)
        chosen.add_argument(
            "--of", dest="who", metavar="USER", help="only rules for this user; * for rules that apply to all users"
        )
    return command


def _resources(rule: argparse.ArgumentParser, *, required: bool) -> None:
    group = rule.add_mutually_exclusive_group(required=required)
    for word, what in (("topic", "topic"), ("group", "consumer group"), ("transactional-id", "transactional id")):
        group.add_argument(f"--{word}", metavar="NAME", help=f"a {what}; * for all")
        group.add_argument(f"--{word}-prefix", metavar="PREFIX", help=f"every {what} with this prefix")
    group.add_argument("--cluster", action="store_true", help="the cluster itself")
    rule.add_argument(
        "--from-host", metavar="ADDRESS", help="only for connections from this address" + (" (default: any)" * required)
    )


def run(argv: list[str]) -> int:
    """Carry out one subcommand."""
    arguments = parser().parse_args(argv)
    from penstock.cli.access_actions import ACTIONS

    with make_client(arguments) as client:
        return ACTIONS[arguments.action](client, arguments, Output.of(arguments))
