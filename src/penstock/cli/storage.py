"""`penstock storage`: the disks of a node."""

from __future__ import annotations

import argparse
from typing import Any

from penstock.cli.client_options import http_options
from penstock.cli.command_parser import CommandParser
from penstock.cli.exit_codes import ExitCode
from penstock.cli.http_api import make_api
from penstock.cli.output import Output, Size
from penstock.cli.sizes import shown_duration


def parser() -> argparse.ArgumentParser:
    """Its subcommands."""
    command = CommandParser(prog="penstock storage", description="Show the disks of a node, and scrub them.")
    actions = command.add_subparsers(dest="action", required=True, metavar="action")
    parent = http_options()

    def action(name: str, summary: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".", parents=[parent])

    action("list", "list storage groups and their disks")
    action("scrub", "read and verify all stored data in the background, and repair what is damaged")
    action(
        "confirm-clock",
        "confirm that the machine's clock is right after it jumped or the node was down for long: retention uses "
        "it at once and deletes expired messages",
    )
    return command


def run(argv: list[str]) -> int:
    """Carry out one subcommand."""
    arguments = parser().parse_args(argv)
    api = make_api(arguments)
    output = Output.of(arguments)
    if arguments.action == "scrub":
        begun = api.call("POST", "/storage/scrub")
        if output.as_json:
            output.document(begun)
        output.say(
            "the scrub has started; `penstock storage list` shows its results"
            if begun["started"]
            else "a scrub is already running"
        )
        return ExitCode.OK
    if arguments.action == "confirm-clock":
        confirmed = api.call("POST", "/storage/confirm-clock")
        if output.as_json:
            output.document(confirmed)
        output.say(f"messages age by the machine's clock; they were {shown_duration(confirmed['behind_s'])} behind it")
        return ExitCode.OK
    _list_disks(api.get("/storage"), output)
    return ExitCode.OK


def _list_disks(storage: dict[str, Any], output: Output) -> None:
    if output.as_json:
        output.document(storage)
        return
    columns = (
        "group",
        "state",
        "disk",
        "realm",
        "domain",
        "disk state",
        "used",
        "free",
        "chunks",
        "parts",
        "damaged",
        "to heal",
        "path",
    )
    rows = [
        (
            group["name"],
            group["state"],
            vdisk["order"],
            vdisk["fail_realm"],
            vdisk["fail_domain"],
            vdisk["state"],
            Size(vdisk["used"]),
            None if vdisk["free"] is None else Size(vdisk["free"]),
            vdisk["chunks"],
            vdisk["parts"],
            vdisk["damaged"],
            vdisk["to_heal"],
            vdisk["path"],
        )
        for group in storage["groups"]
        for vdisk in group["vdisks"]
    ]
    output.rows(columns, rows)
