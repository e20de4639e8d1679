"""Rebuilds what coordination has lost from the disks of nodes: the identity of the cluster and its groups.

Each machine writes what its disks know to a file, also while its node runs; one of them puts all together:

     machine 1: penstock cluster export n1.json --data-dir DIR  ┐
     machine 2: penstock cluster export n2.json --data-dir DIR  ├─ penstock cluster recover --from n1.json --from n2.json …
     machine 3: penstock cluster export n3.json --data-dir DIR  ┘

     {"format": 1, "cluster_id": …, "recoveries": 0, "store_id": …, "revision": …, "feature_level": 1, "node_id": 2,
      "groups": [2181038080], "vdisks": [{"disk": "disk0", "configuration": …}], "unreadable": {"disk1": "why"}}
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.blob import DYNAMIC_GROUPS_FROM, Configuration, Seat, group_quorum
from penstock.coordination import ClusterIdentity, ClusterMark, Coordination, Position
from penstock.core.errors import ConfigError, CorruptionError
from penstock.server.cluster.directory import ClusterDirectory
from penstock.server.cluster.disks import NodeDisks
from penstock.server.config import NodeConfig
from penstock.server.data_directory import CLUSTER_NAME
from penstock.server.errors import DirectoryMismatchError, DirectoryUnusableError
from penstock.server.json_file import read_fields, write_fields


class TooFewDisksError(ConfigError):
    """Fewer disks of a group were read than know its newest configuration for certain."""

    code = "too_few_disks"


class NodeExport(NamedTuple):
    """What the data directory and the disks of a node know of the cluster. `unreadable` disks are told with the reason."""

    mark: ClusterMark
    feature_level: int
    node_id: int
    groups: frozenset[int]  # that the node has seen in the store
    vdisks: list[tuple[Seat, Configuration]]
    unreadable: dict[str, str]


class Recovered(NamedTuple):
    """What was rebuilt: the identity, the ids of the groups, and the disks of these groups that were not read."""

    identity: ClusterIdentity
    groups: list[int]
    unread: list[str]


def read_node(config: NodeConfig, path: Path) -> NodeExport:
    """Read the data directory of a node, which may be running."""
    if not (path / CLUSTER_NAME).exists():
        raise DirectoryMismatchError(f"{path} is not the data directory of a node of a cluster")
    directory = ClusterDirectory.look(path)
    mark = directory.mark()
    if mark is None:
        raise DirectoryMismatchError(f"{path} was never part of a cluster; name the directory of a node that was")
    node_id = directory.node_id
    disks = NodeDisks(directory.disks, directory.cluster_id, node_id, durable=True, timeout_s=config.disk_timeout_s)
    found, unreadable = disks.configurations()
    vdisks = [(Seat(node_id, name), configuration) for name, configuration in found]
    return NodeExport(mark, directory.feature_level(), node_id, directory.known_groups(), vdisks, unreadable)


def write_export(export: NodeExport, path: Path) -> None:
    """Write an export to a file."""
    mark = export.mark
    fields = {
        "cluster_id": mark.cluster_id,
        "recoveries": mark.recoveries,
        "store_id": mark.position.store_id,
        "revision": mark.position.revision,
        "feature_level": export.feature_level,
        "node_id": export.node_id,
        "groups": sorted(export.groups),
        "vdisks": [
            {"disk": seat.disk, "configuration": base64.b64encode(configuration.pack()).decode()}
            for seat, configuration in export.vdisks
        ],
        "unreadable": export.unreadable,
    }
    try:
        write_fields(path, fields)
    except OSError as error:
        raise DirectoryUnusableError(f"cannot write {path}: {error.strerror}") from error


def read_export(path: Path) -> NodeExport:
    """Read what `write_export` wrote."""
    wanted = {"cluster_id": str, "recoveries": int, "store_id": str, "revision": int, "feature_level": int, "node_id": int}
    fields = read_fields(path, {**wanted, "groups": list, "vdisks": list, "unreadable": dict})
    if fields is None:
        raise DirectoryMismatchError(f"there is no file {path}; `penstock cluster export` writes one")
    mark = ClusterMark(fields["cluster_id"], fields["recoveries"], Position(fields["store_id"], fields["revision"]))
    node_id = fields["node_id"]
    try:
        vdisks = [
            (Seat(node_id, vdisk["disk"]), Configuration.unpack(base64.b64decode(vdisk["configuration"], validate=True)))
            for vdisk in fields["vdisks"]
        ]
    except (KeyError, TypeError, ValueError, CorruptionError) as error:
        raise DirectoryMismatchError(f"{path} is damaged: {error}; export it again") from error
    return NodeExport(mark, fields["feature_level"], node_id, frozenset(fields["groups"]), vdisks, fields["unreadable"])


async def recover(
    coordination: Coordination, cluster_name: str, exports: Sequence[NodeExport], *, accept_missing: bool = False
) -> Recovered:
    """Bring an empty or old store up to date. Of each group the newest configuration on any disk counts, and a quorum of its
    disks must be among those that were read, unless missing ones are accepted: they may know of a later move of a VDisk. A group
    of which no disk was read returns with the first node that has one."""
    marks = [export.mark for export in exports]
    if len({mark.cluster_id for mark in marks}) != 1:
        raise DirectoryMismatchError("these nodes are not of one cluster; name those of one")
    newest = _newest(configuration for export in exports for _, configuration in export.vdisks)
    if not newest:
        raise DirectoryMismatchError("no disk of these nodes has a VDisk; name nodes that have one")
    unread = {group: _unread(configuration, exports) for group, configuration in newest.items()}
    _check_groups(exports, newest, accept_missing=accept_missing)
    if not accept_missing:
        for group, configuration in newest.items():
            _check_quorum(configuration, unread[group], exports)
    # A single node that became the first one of the cluster has a group of another kind.
    first = newest[min((group for group in newest if group >= DYNAMIC_GROUPS_FROM), default=min(newest))]
    mark = max(marks, key=lambda mark: (mark.recoveries, mark.position.revision))
    level = max(export.feature_level for export in exports)
    identity = ClusterIdentity(cluster_id=mark.cluster_id, name=cluster_name, kind=first.erasure.value, feature_level=level)
    values = {group: configuration.pack() for group, configuration in newest.items()}
    identity = await coordination.recover_cluster(identity, mark, values, _is_newer)
    seats = sorted({seat for missing in unread.values() for seat in missing})
    return Recovered(identity, sorted(newest), list(map(_named, seats)))


def _newest(configurations: Iterable[Configuration]) -> dict[int, Configuration]:
    newest: dict[int, Configuration] = {}
    for configuration in configurations:
        known = newest.get(configuration.group)
        if known is None or known.generation < configuration.generation:
            newest[configuration.group] = configuration
    return newest


def _check_groups(exports: Sequence[NodeExport], newest: Mapping[int, Configuration], *, accept_missing: bool) -> None:
    """Refuse to go on without a group that any node knows; without the first one, which has the catalog, in any case."""
    known = frozenset().union(newest, *(export.groups for export in exports))
    missing = sorted(known - newest.keys())
    if missing and (not accept_missing or missing[0] == min(known)):
        named = ", ".join(f"{group:08x}" for group in missing)
        raise TooFewDisksError(
            f"no disk of storage group {named} was read; run `penstock cluster export` on the nodes that have them, and name the"
            " files with --from" + ("" if missing[0] == min(known) else "; if they are lost for good, add --accept-missing")
        )


def _unread(configuration: Configuration, exports: Sequence[NodeExport]) -> list[Seat]:
    """The disks of a group from which its configuration was not read."""
    read = {seat for export in exports for seat, known in export.vdisks if known.group == configuration.group}
    return [seat for seat in configuration.seats if seat not in read]


def _check_quorum(configuration: Configuration, unread: list[Seat], exports: Sequence[NodeExport]) -> None:
    seats = configuration.seats
    if group_quorum(configuration.erasure, sum(1 << order for order, seat in enumerate(seats) if seat not in unread)):
        return
    reasons = {Seat(export.node_id, disk): why for export in exports for disk, why in export.unreadable.items()}
    told = ", ".join(f"{_named(seat)} ({reasons[seat]})" if seat in reasons else _named(seat) for seat in unread)
    raise TooFewDisksError(
        f"of storage group {configuration.group:08x} ({configuration.erasure.value}) {len(seats) - len(unread)} of {len(seats)}"
        f" disks were read, too few to know where its VDisks live; missing: {told} (NODE:DISK). Run `penstock cluster export` on"
        " those nodes and name the files with --from; if they are lost for good, add --accept-missing"
    )


def _is_newer(configuration: bytes, stored: bytes) -> bool:
    return Configuration.unpack(configuration).generation > Configuration.unpack(stored).generation


def _named(seat: Seat) -> str:
    return f"{seat.node}:{seat.disk}"
