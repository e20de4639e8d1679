"""`penstock disk`: moves what is on a disk of a cluster to other disks."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from penstock.cli.command_parser import CommandParser
from penstock.cli.etcd_options import ask_leader, etcd_options, run_connected, show_answer
from penstock.cli.failure import CommandError, usage
from penstock.cli.output import Output

if TYPE_CHECKING:
    from penstock.coordination import Coordination


TIMEOUT_S = 60.0


def parser() -> argparse.ArgumentParser:
    """Its subcommands."""
    command = CommandParser(prog="penstock disk", description="Replace or drain a disk of a cluster.")
    actions = command.add_subparsers(dest="action", required=True, metavar="action")
    replace = actions.add_parser(
        "replace",
        help="move the VDisks of a disk to another one, which is refilled from the others",
        description="Move the VDisks of a disk to another one, which is refilled from the others. The command waits for a group "
        "whose other disks are out or being refilled. An empty disk in the same place needs no command: restart its node.",
        parents=[etcd_options()],
    )
    drain = actions.add_parser(
        "drain",
        help="move all VDisks of a disk to other disks, and give it no more",
        description="Move all VDisks of a disk to the least loaded disks that fit, and give it no more until it is undrained. A "
        "group whose other disks are out or being refilled waits for them.",
        parents=[etcd_options()],
    )
    undrain = actions.add_parser(
        "undrain",
        help="let a drained disk get VDisks again",
        description="Let a drained disk get VDisks again. Those that were moved stay where they are.",
        parents=[etcd_options()],
    )
    for action in (replace, drain, undrain):
        action.add_argument("disk", metavar="NODE:DISK", help="the disk, such as 2:disk0; `penstock node list` shows them")
    replace.add_argument("--to", metavar="NODE:DISK", default=None, help="the disk to use (default: the least loaded that fits)")
    replace.add_argument(
        "--timeout-s", metavar="SECONDS", type=float, default=TIMEOUT_S, help="how long to wait for the decision (default: 60)"
    )
    drain.add_argument("--wait", action="store_true", help="return when it has no VDisks any more")
    drain.add_argument(
        "--timeout-s", metavar="SECONDS", type=float, default=TIMEOUT_S, help="how long --wait waits (default: 60)"
    )
    return command


def run(argv: list[str]) -> int:
    """Carry out the subcommand."""
    arguments = parser().parse_args(argv)
    actions = {"replace": _replace, "drain": _drain, "undrain": _undrain}
    return run_connected(actions[arguments.action], arguments)


async def _replace(coordination: Coordination, arguments: argparse.Namespace, output: Output) -> None:
    wanted = _disk(arguments.disk)
    if arguments.to is not None:
        _disk(arguments.to)
        wanted["to"] = arguments.to
    show_answer(output, await ask_leader(coordination, "replace-disk", wanted, arguments.timeout_s))


async def _drain(coordination: Coordination, arguments: argparse.Namespace, output: Output) -> None:
    disk = _disk(arguments.disk)
    answer = await ask_leader(coordination, "drain-disk", disk, TIMEOUT_S)
    if arguments.wait:
        try:
            answer = await ask_leader(coordination, "await-disk-drained", disk, arguments.timeout_s)
        except CommandError as error:
            again = f"wait again, or run: penstock disk undrain {arguments.disk}"
            raise CommandError(f"{arguments.disk} drains, but is not empty: {error}; {again}") from error
    show_answer(output, answer)


async def _undrain(coordination: Coordination, arguments: argparse.Namespace, output: Output) -> None:
    show_answer(output, await ask_leader(coordination, "undrain-disk", _disk(arguments.disk), TIMEOUT_S))


def _disk(text: str) -> dict[str, str]:
    """The arguments of a request about a disk that is written as NODE:DISK."""
    node, _, disk = text.partition(":")
    if not (node.isdigit() and disk):
        raise usage(f"{text!r} is no disk; write the id of its node and its name there, such as 2:disk0")
    return {"node": node, "disk": disk}
