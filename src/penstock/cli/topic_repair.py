"""`penstock topic repair`: what is lost of a damaged topic is told, and given up once that is meant."""

from __future__ import annotations

import argparse
from typing import Any
from urllib.parse import quote

from penstock.cli.exit_codes import ExitCode
from penstock.cli.failure import CommandError
from penstock.cli.http_api import HttpApi
from penstock.cli.output import Output, confirm


def repair(api: HttpApi, arguments: argparse.Namespace, output: Output) -> int:
    """Tell what is lost; ask; give it up."""
    path = f"/topics/{quote(arguments.name, safe='')}"
    damage = api.get(f"{path}/damage")
    is_damaged = bool(damage["log"] or damage["offsets"])
    if arguments.dry_run or not is_damaged:
        _show(damage, arguments.name, output)
        return ExitCode.OK
    if not output.as_json:
        _show(damage, arguments.name, output)
    if not confirm(f"Discard the lost offsets of {arguments.name} permanently?", yes=arguments.yes):
        raise CommandError("nothing was changed")
    given_up = api.call("POST", f"{path}/repair")
    if output.as_json:
        output.document(given_up)
    output.say(f"{arguments.name} is served again, without the lost offsets")
    return ExitCode.OK


def _show(damage: dict[str, Any], name: str, output: Output) -> None:
    if output.as_json:
        output.document(damage)
        return
    if not damage["log"] and not damage["offsets"]:
        output.say(f"nothing of {name} is lost")
        return
    for loss in damage["log"]:
        output.line(f"lost in the log: {loss}")
    if damage["log"]:
        output.line("the latest messages may be lost with it: partitions then end earlier, by an unknown number of messages")
    for lost in damage["offsets"]:
        output.line(f"lost in partition {lost['partition']}: offsets {lost['first']} to {lost['last']}")
