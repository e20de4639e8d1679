"""`penstock node`: the nodes of a cluster, by etcd and its leader, and what is to become of their tablets."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.command_parser import CommandParser
from penstock.cli.etcd_options import ask_leader, etcd_options, run_connected, show_answer
from penstock.cli.failure import CommandError
from penstock.cli.output import Output

if TYPE_CHECKING:
    from penstock.coordination import Coordination, MemberRecord, NodeRecord

TIMEOUT_S: Final = 30.0
STATES_S: Final = 5.0
DRAIN_S: Final = 300.0


def parser() -> argparse.ArgumentParser:
    """Its subcommands."""
    command = CommandParser(prog="penstock node", description="List the nodes of a cluster, drain and remove them.")
    actions = command.add_subparsers(dest="action", required=True, metavar="action")
    parent = etcd_options()
    actions.add_parser(
        "list",
        help="list all nodes with their state, tablets, disks and addresses",
        description="List all nodes with their state (leader, running, leaving, unreached by the leader, or away; draining if "
        "they are to be emptied), how many tablets they own, disks and addresses.",
        parents=[parent],
    )
    drain = actions.add_parser(
        "drain",
        help="move all tablets of a node to others, and give it no more",
        description="Move all tablets of a node to others, one after another and without losing what is in flight, and give it "
        "no more. If it leads the cluster, another node does after that. Its disks stay in their storage groups.",
        parents=[parent],
    )
    drain.add_argument("node", type=int, metavar="NODE", help="the id of the node")
    drain.add_argument("--wait", action="store_true", help="return when it owns no tablets any more")
    drain.add_argument(
        "--timeout-s", metavar="SECONDS", type=float, default=DRAIN_S, help=f"how long to wait (default: {DRAIN_S:g})"
    )
    undrain = actions.add_parser(
        "undrain",
        help="let a drained node get tablets again",
        description="Let a drained node get tablets again; some of the others' move to it.",
        parents=[parent],
    )
    undrain.add_argument("node", type=int, metavar="NODE", help="the id of the node")
    remove = actions.add_parser(
        "remove",
        help="remove a node that does not run and has no disks of storage groups",
        description="Remove a node for good. It must not run, and its disks must be replaced before: `penstock disk replace`.",
        parents=[parent],
    )
    remove.add_argument("node", type=int, metavar="NODE", help="the id of the node")
    maintenance = actions.add_parser(
        "maintenance",
        help="stop or resume moving tablets by itself",
        description="While maintenance is on, tablets of nodes that are lost wait for them, and none moves for balance: for work "
        "on the network, or a restart of all nodes. Commands still drain nodes and move tablets.",
        parents=[parent],
    )
    maintenance.add_argument("mode", choices=("on", "off"), help="whether maintenance is on")
    return command


def run(argv: list[str]) -> int:
    """Carry out one subcommand."""
    arguments = parser().parse_args(argv)
    actions = {"list": _list, "drain": _drain, "undrain": _undrain, "remove": _remove, "maintenance": _maintain}
    return run_connected(actions[arguments.action], arguments)


async def _list(coordination: Coordination, _: argparse.Namespace, output: Output) -> None:
    await coordination.open()
    states, trouble = await _ask_states(coordination)
    members = {member.node_id: member for member in coordination.members()}
    leader = coordination.leader
    counts = coordination.owners().counts()
    nodes = [
        _described(
            node_id,
            node,
            members.get(node_id),
            state=states.get(node_id),
            is_leader=leader is not None and node_id == leader.record.node_id,
            tablets=counts.get(node_id, 0),
        )
        for node_id, node in sorted(coordination.nodes().items())
        if not node.is_removed
    ]
    if output.as_json:
        output.document(nodes)
        return
    columns = ("node", "name", "state", "tablets", "rack", "datacenter", "version", "disks", "addresses")
    output.rows(
        columns,
        [
            (
                node["node"],
                node["name"],
                f"{node['state']}, draining" if node["draining"] else node["state"],
                node["tablets"],
                node["rack"],
                node["datacenter"],
                node["version"],
                _shown_disks(node),
                " ".join(f"{name}={address}" for name, address in sorted(node["addresses"].items())),
            )
            for node in nodes
        ],
    )
    if trouble:
        output.say(f"the states are those of etcd, where a lost node runs until its lease ends: {trouble}")
    if coordination.is_maintained:
        output.say("maintenance is on: no tablet moves by itself")


async def _ask_states(coordination: Coordination) -> tuple[dict[int, str], str]:
    """The states of nodes as the leader sees them, which knows at once of one that is lost; or none, and why it does not tell."""
    from penstock.server.cluster.known_nodes import NODE_STATES

    if coordination.leader is None:
        return {}, "no node leads"
    try:
        answer = await ask_leader(coordination, NODE_STATES, {}, STATES_S)
    except CommandError as error:
        return {}, str(error)
    return {int(node_id): state for node_id, state in json.loads(answer).items()}, ""


def _described(
    node_id: int, node: NodeRecord, member: MemberRecord | None, *, state: str | None, is_leader: bool, tablets: int
) -> dict[str, Any]:
    return {
        "node": node_id,
        "name": node.name,
        "state": state or ("away" if member is None else "leader" if is_leader else "running"),
        "draining": node.is_draining,
        "tablets": tablets,
        "rack": "" if member is None else member.rack,
        "datacenter": "" if member is None else member.datacenter,
        "version": "" if member is None else member.version,
        "disks": {} if member is None else member.disks,
        "draining_disks": sorted(node.draining_disks),
        "addresses": {} if member is None else member.addresses,
    }


def _shown_disks(node: dict[str, Any]) -> str:
    """Each disk with what is wrong with it, or that it drains."""
    fine = dict.fromkeys(node["draining_disks"], "draining")
    return " ".join(f"{disk}={trouble or fine.get(disk, 'ok')}" for disk, trouble in sorted(node["disks"].items()))


async def _drain(coordination: Coordination, arguments: argparse.Namespace, output: Output) -> None:
    node = {"node": str(arguments.node)}
    answer = await ask_leader(coordination, "drain-node", node, TIMEOUT_S)
    if arguments.wait:
        try:
            answer = await ask_leader(coordination, "await-drained", node, arguments.timeout_s)
        except CommandError as error:
            again = f"wait again, or run: penstock node undrain {arguments.node}"
            raise CommandError(f"node {arguments.node} drains, but is not empty: {error}; {again}") from error
    show_answer(output, answer)


async def _undrain(coordination: Coordination, arguments: argparse.Namespace, output: Output) -> None:
    show_answer(output, await ask_leader(coordination, "undrain-node", {"node": str(arguments.node)}, TIMEOUT_S))


async def _remove(coordination: Coordination, arguments: argparse.Namespace, output: Output) -> None:
    show_answer(output, await ask_leader(coordination, "remove-node", {"node": str(arguments.node)}, TIMEOUT_S))


async def _maintain(coordination: Coordination, arguments: argparse.Namespace, output: Output) -> None:
    show_answer(output, await ask_leader(coordination, "maintenance", {"mode": arguments.mode}, TIMEOUT_S))
