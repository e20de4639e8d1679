"""`penstock cluster`: creates a cluster in etcd, shows what etcd holds of it, and rebuilds that from the disks."""

from __future__ import annotations

import argparse
import os
import socket
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.client_options import output_options
from penstock.cli.command_parser import CommandParser
from penstock.cli.etcd_options import ask_leader, cluster_config, etcd_options, run_connected, show_answer
from penstock.cli.exit_codes import ExitCode
from penstock.cli.failure import usage
from penstock.cli.output import Output
from penstock.server.config import load_config

if TYPE_CHECKING:
    from penstock.coordination import ClusterIdentity, Coordination

KINDS: Final = ("mirror-3", "block-4-2", "mirror-3-dc")
TIMEOUT_S: Final = 60.0


def parser() -> argparse.ArgumentParser:
    """Its subcommands."""
    command = CommandParser(prog="penstock cluster", description="Create a cluster in etcd, show it, and rebuild it.")
    actions = command.add_subparsers(dest="action", required=True, metavar="action")
    parent = etcd_options()
    init = actions.add_parser(
        "init",
        help="create a cluster, unless it exists",
        description="Create a cluster: its id, its name and the kind of its storage groups. Run it once: if the cluster "
        "exists with the same kind, nothing changes.",
        parents=[parent],
    )
    init.add_argument("--kind", choices=KINDS, default=KINDS[0], help=f"the kind of its storage groups (default: {KINDS[0]})")
    init.add_argument(
        "--bootstrap-expect",
        type=int,
        default=0,
        metavar="N",
        help="the number of nodes that must run before the first storage group is created (default: as many as its kind needs)",
    )
    _add_node_options(init)
    actions.add_parser(
        "show",
        help="show the identity, the leader and the members of a cluster",
        description="Show the identity, the leader and the members of a cluster, as etcd has them.",
        parents=[parent],
    )
    _add_recovery(actions, parent)
    _add_requests(actions, parent)
    return command


def _add_recovery(actions: Any, parent: CommandParser) -> None:
    """What rebuilds a lost etcd."""
    export = actions.add_parser(
        "export",
        help="write what the disks of this machine know of the cluster to a file, for `cluster recover`",
        description="Write what the disks of this machine know of the cluster to a file, for `penstock cluster recover` on "
        "another one. etcd is not needed, and the node may be running. The file holds no messages and no secrets.",
    )
    export.add_argument("file", metavar="FILE", type=Path, help="the file to write")
    export.add_argument("--data-dir", metavar="DIR", type=Path, required=True, help="the data directory of the node")
    output_options(export.add_argument_group("output"))
    recover = actions.add_parser(
        "recover",
        help="rebuild an etcd that is empty or an old copy from the disks of nodes",
        description="Rebuild an etcd that lost its data, or is an old copy, from what the disks of nodes know: the files that "
        "`penstock cluster export` wrote on other machines, and data directories of this one. Nodes may be running; they go on "
        "by themselves. Of each storage group as many disks must be among them as the group needs to serve.",
        parents=[parent],
    )
    recover.add_argument(
        "--from",
        dest="exports",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="a file that `penstock cluster export` wrote on another machine; may be repeated",
    )
    recover.add_argument(
        "--data-dir", metavar="DIR", type=Path, action="append", default=[], help="the data directory of a node; may be repeated"
    )
    recover.add_argument(
        "--accept-missing",
        action="store_true",
        help="go on though too few disks of a group could be read: those that are missing are lost for good",
    )


def _add_requests(actions: Any, parent: CommandParser) -> None:
    """What the leader is asked for."""
    add_group = actions.add_parser(
        "add-group",
        help="create another storage group",
        description="Create another storage group on the least loaded disks of running nodes. New topics are spread over all "
        "groups of the cluster's kind, by free space and by how many partitions each has; topics that exist stay where they are.",
        parents=[parent],
    )
    add_group.add_argument("--kind", choices=KINDS, default=None, help="its kind (default: that of the cluster)")
    actions.add_parser(
        "raise-level",
        help="allow what all nodes know since they were upgraded",
        description="Raise the feature level of the cluster to the highest that all of its nodes know. Until then the version "
        "before can be started again; afterwards it cannot. All nodes must run.",
        parents=[parent],
    )


def _add_node_options(init: argparse.ArgumentParser) -> None:
    init.add_argument(
        "--from-node",
        type=Path,
        metavar="DIR",
        help="the data directory of a single node that is stopped: it becomes the first node, with its topics as they are",
    )
    init.add_argument("--node-name", metavar="NAME", help="the name of that node (default: the name of this machine)")


def run(argv: list[str]) -> int:
    """Carry out one subcommand."""
    arguments = parser().parse_args(argv)
    if arguments.action == "export":
        return _export(arguments)
    actions = {"init": _init, "show": _show, "recover": _recover, "add-group": _add_group, "raise-level": _raise_level}
    return run_connected(actions[arguments.action], arguments)


async def _init(coordination: Coordination, arguments: argparse.Namespace, output: Output) -> None:
    from penstock.coordination import ClusterIdentity

    if arguments.from_node is not None:
        await _convert(coordination, arguments, output)
        return
    if arguments.node_name is not None:
        raise usage("--node-name is for --from-node; other nodes tell their names when they start")
    wanted = ClusterIdentity(
        cluster_id=str(uuid.uuid4()), name=arguments.name, kind=arguments.kind, nodes_expected=arguments.bootstrap_expect
    )
    identity = await coordination.create_cluster(wanted)
    is_new = identity.cluster_id == wanted.cluster_id
    if output.as_json:
        output.document({**_identity_fields(identity), "created": is_new})
    output.say(
        f"cluster {identity.name} {'created' if is_new else 'exists, nothing was changed'}: id {identity.cluster_id},"
        f" storage groups of kind {identity.kind}"
    )


async def _convert(coordination: Coordination, arguments: argparse.Namespace, output: Output) -> None:
    from penstock.server.cluster.conversion import convert

    if arguments.bootstrap_expect:
        raise usage("--bootstrap-expect is for a cluster without data; leave it out with --from-node")
    node_name = arguments.node_name or socket.gethostname().partition(".")[0]
    identity = await convert(
        coordination, arguments.from_node.absolute(), cluster_name=arguments.name, kind=arguments.kind, node_name=node_name
    )
    if output.as_json:
        output.document({**_identity_fields(identity), "node_name": node_name})
    output.say(
        f"cluster {identity.name} is made of {arguments.from_node}: id {identity.cluster_id}; start that node with"
        f" --node-name {node_name} and --etcd"
    )


async def _show(coordination: Coordination, _: argparse.Namespace, output: Output) -> None:
    identity = await coordination.open()
    leader, members = coordination.leader, coordination.members()
    leader_id = leader.record.node_id if leader is not None else None
    if output.as_json:
        described = [
            {"node": member.node_id, "name": member.name, "addresses": member.addresses, "rack": member.rack}
            for member in members
        ]
        output.document({**_identity_fields(identity), "leader": leader_id, "members": described})
        return
    output.line(
        f"cluster {identity.name}: id {identity.cluster_id}, kind {identity.kind}, feature level {identity.feature_level}"
    )
    if not members:
        output.line("no node is running")
        return
    output.rows(
        ("node", "name", "rack", "leads", "addresses"),
        [
            (
                member.node_id,
                member.name,
                member.rack,
                "yes" if member.node_id == leader_id else "",
                " ".join(f"{kind}={address}" for kind, address in sorted(member.addresses.items())),
            )
            for member in members
        ],
    )


def _export(arguments: argparse.Namespace) -> int:
    from penstock.server.cluster.recovery import read_node, write_export

    output = Output.of(arguments)
    export = read_node(load_config({}, os.environ), arguments.data_dir.absolute())
    write_export(export, arguments.file)
    found = {"node": export.node_id, "cluster_id": export.mark.cluster_id, "vdisks": len(export.vdisks)}
    if output.as_json:
        output.document({**found, "disks_not_read": export.unreadable})
    output.say(
        f"{arguments.file} holds what node {export.node_id} knows of cluster {export.mark.cluster_id}, with {len(export.vdisks)}"
        f" VDisks; name it to `penstock cluster recover --from {arguments.file.name}`"
    )
    for disk, reason in export.unreadable.items():
        output.say(f"{disk} cannot be read: {reason}")
    return ExitCode.OK


async def _recover(coordination: Coordination, arguments: argparse.Namespace, output: Output) -> None:
    from penstock.server.cluster.recovery import read_export, read_node, recover

    if not arguments.exports and not arguments.data_dir:
        raise usage("name what to rebuild etcd from: --from FILE for other machines, --data-dir DIR for this one")
    config = cluster_config(arguments)
    exports = [read_export(path) for path in arguments.exports]
    exports += [read_node(config, path.absolute()) for path in arguments.data_dir]
    recovered = await recover(coordination, config.cluster_name, exports, accept_missing=arguments.accept_missing)
    identity, groups, unread = recovered
    if output.as_json:
        output.document(
            {**_identity_fields(identity), "recoveries": identity.recoveries, "groups": groups, "disks_not_read": unread}
        )
    output.say(
        f"cluster {identity.name} is rebuilt: id {identity.cluster_id}, {len(groups)} storage groups, for the"
        f" {identity.recoveries}. time; nodes that run go on by themselves, start the others"
    )
    if unread:
        output.say(
            f"not read: {', '.join(unread)} (NODE:DISK); if they know of a later move of a VDisk, it holds as soon as their nodes"
            " run"
        )


async def _add_group(coordination: Coordination, arguments: argparse.Namespace, output: Output) -> None:
    wanted = {} if arguments.kind is None else {"erasure": arguments.kind}
    answer = await ask_leader(coordination, "make-group", wanted, TIMEOUT_S)
    show_answer(output, answer)


async def _raise_level(coordination: Coordination, _: argparse.Namespace, output: Output) -> None:
    show_answer(output, await ask_leader(coordination, "raise-level", {}, TIMEOUT_S))


def _identity_fields(identity: ClusterIdentity) -> dict[str, object]:
    return {
        "cluster_id": identity.cluster_id,
        "name": identity.name,
        "kind": identity.kind,
        "feature_level": identity.feature_level,
    }
