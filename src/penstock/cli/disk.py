"""`penstock disk`: moves what is on a disk of a cluster to another one."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from penstock.cli.command_parser import CommandParser
from penstock.cli.etcd_options import ask_leader, etcd_options, run_connected, show_answer
from penstock.cli.failure import usage
from penstock.cli.output import Output

if TYPE_CHECKING:
    from penstock.coordination import Coordination


def parser() -> argparse.ArgumentParser:
    """Its subcommands."""
    command = CommandParser(prog="penstock disk", description="Replace a disk of a cluster.")
    actions = command.add_subparsers(dest="action", required=True, metavar="action")
    replace = actions.add_parser(
        "replace",
        help="move the VDisks of a disk to another one, which is refilled from the others",
        description="Move the VDisks of a disk to another one, which is refilled from the others. The command waits for a group "
        "whose other disks are out or being refilled. An empty disk in the same place needs no command: restart its node.",
        parents=[etcd_options()],
    )
    replace.add_argument("disk", metavar="NODE:DISK", help="the disk to leave, such as 2:disk0; `penstock node list` shows them")
    replace.add_argument("--to", metavar="NODE:DISK", default=None, help="the disk to use (default: the least loaded that fits)")
    replace.add_argument(
        "--timeout-s", metavar="SECONDS", type=float, default=60.0, help="how long to wait for the decision (default: 60)"
    )
    return command


def run(argv: list[str]) -> int:
    """Carry out the subcommand."""
    return run_connected(_replace, parser().parse_args(argv))


async def _replace(coordination: Coordination, arguments: argparse.Namespace, output: Output) -> None:
    wanted: dict[str, str] = {}
    wanted["node"], _, wanted["disk"] = arguments.disk.partition(":")
    for given in (arguments.disk, arguments.to):
        if given is not None and not _is_disk(given):
            raise usage(f"{given!r} is no disk; write the id of its node and its name there, such as 2:disk0")
    if arguments.to is not None:
        wanted["to"] = arguments.to
    answer = await ask_leader(coordination, "replace-disk", wanted, arguments.timeout_s)
    show_answer(output, answer)


def _is_disk(text: str) -> bool:
    node, colon, disk = text.partition(":")
    return bool(colon and disk) and node.isdigit()
