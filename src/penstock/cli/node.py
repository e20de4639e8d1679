"""`penstock node`: the nodes of a cluster, as etcd has them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.command_parser import CommandParser
from penstock.cli.etcd_options import ask_leader, etcd_options, run_connected
from penstock.cli.output import Output

if TYPE_CHECKING:
    from penstock.coordination import Coordination, MemberRecord

TIMEOUT_S: Final = 30.0


def parser() -> argparse.ArgumentParser:
    """Its subcommands."""
    command = CommandParser(prog="penstock node", description="List the nodes of a cluster, and remove them.")
    actions = command.add_subparsers(dest="action", required=True, metavar="action")
    parent = etcd_options()
    actions.add_parser(
        "list",
        help="list all nodes with their state, disks and addresses",
        description="List all nodes with their state (active: it runs the broker, standby, or away), disks and addresses.",
        parents=[parent],
    )
    remove = actions.add_parser(
        "remove",
        help="remove a node that does not run and has no disks of storage groups",
        description="Remove a node for good. It must not run, and its disks must be replaced before: `penstock disk replace`.",
        parents=[parent],
    )
    remove.add_argument("node", type=int, metavar="NODE", help="the id of the node")
    return command


def run(argv: list[str]) -> int:
    """Carry out one subcommand."""
    arguments = parser().parse_args(argv)
    return run_connected(_list if arguments.action == "list" else _remove, arguments)


async def _list(coordination: Coordination, _: argparse.Namespace, output: Output) -> None:
    await coordination.open()
    members = {member.node_id: member for member in coordination.members()}
    active = coordination.owner_of(0)
    nodes = [
        _described(node_id, node.name, members.get(node_id), is_active=node_id == active)
        for node_id, node in sorted(coordination.nodes().items())
        if not node.is_removed
    ]
    if output.as_json:
        output.document(nodes)
        return
    columns = ("node", "name", "state", "rack", "datacenter", "version", "disks", "addresses")
    output.rows(
        columns,
        [
            (
                node["node"],
                node["name"],
                node["state"],
                node["rack"],
                node["datacenter"],
                node["version"],
                " ".join(f"{disk}={trouble or 'ok'}" for disk, trouble in sorted(node["disks"].items())),
                " ".join(f"{name}={address}" for name, address in sorted(node["addresses"].items())),
            )
            for node in nodes
        ],
    )


def _described(node_id: int, name: str, member: MemberRecord | None, *, is_active: bool) -> dict[str, Any]:
    state = "away" if member is None else "active" if is_active else "standby"
    return {
        "node": node_id,
        "name": name,
        "state": state,
        "rack": "" if member is None else member.rack,
        "datacenter": "" if member is None else member.datacenter,
        "version": "" if member is None else member.version,
        "disks": {} if member is None else member.disks,
        "addresses": {} if member is None else member.addresses,
    }


async def _remove(coordination: Coordination, arguments: argparse.Namespace, output: Output) -> None:
    answer = await ask_leader(coordination, "remove-node", {"node": str(arguments.node)}, TIMEOUT_S)
    if output.as_json:
        output.document({"answer": answer})
    output.say(answer)
