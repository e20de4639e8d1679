"""Rebuilds what coordination has lost from the data directories of nodes: the identity of the cluster and its groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import NamedTuple

from penstock.blob import DYNAMIC_GROUPS_FROM, Configuration
from penstock.coordination import ClusterIdentity, ClusterMark, Coordination
from penstock.core.clock import SystemClock
from penstock.server.cluster.directory import ClusterDirectory
from penstock.server.cluster.disks import NodeDisks
from penstock.server.config import NodeConfig
from penstock.server.data_directory import CLUSTER_NAME
from penstock.server.errors import DirectoryMismatchError


class Recovered(NamedTuple):
    """What was rebuilt: the identity, the ids of the groups, and the disks of these groups that were not read."""

    identity: ClusterIdentity
    groups: list[int]
    unread: list[str]


async def recover(coordination: Coordination, config: NodeConfig, directories: Sequence[Path]) -> Recovered:
    """Bring an empty or old store up to date. Of each group the newest configuration on any disk counts, and disks of other nodes
    that have a newer one win as soon as they are registered."""
    newest: dict[int, Configuration] = {}
    marks: list[ClusterMark] = []
    nodes: set[int] = set()
    levels: list[int] = []
    for path in directories:
        mark, found, node_id, level = await _read(config, path)
        marks.append(mark)
        nodes.add(node_id)
        levels.append(level)
        for configuration in found:
            known = newest.get(configuration.group)
            if known is None or known.generation < configuration.generation:
                newest[configuration.group] = configuration
    if len({mark.cluster_id for mark in marks}) != 1:
        raise DirectoryMismatchError("the data directories are not of one cluster; name those of one")
    if not newest:
        raise DirectoryMismatchError("no disk of these data directories has a VDisk; name those of nodes that have one")
    # A single node that became the first one of the cluster has a group of another kind.
    first = newest[min((group for group in newest if group >= DYNAMIC_GROUPS_FROM), default=min(newest))]
    mark = max(marks, key=lambda mark: (mark.recoveries, mark.position.revision))
    identity = ClusterIdentity(
        cluster_id=mark.cluster_id, name=config.cluster_name, kind=first.erasure.value, feature_level=max(levels)
    )
    values = {group: configuration.pack() for group, configuration in newest.items()}
    seats = sorted({seat for configuration in newest.values() for seat in configuration.seats if seat.node not in nodes})
    identity = await coordination.recover_cluster(identity, mark, values)
    return Recovered(identity, sorted(newest), [f"{seat.node}:{seat.disk}" for seat in seats])


async def _read(config: NodeConfig, path: Path) -> tuple[ClusterMark, list[Configuration], int, int]:
    """What the data directory of a node tells: its mark, the configurations on its disks, its id, and the feature level."""
    if not (path / CLUSTER_NAME).exists():
        raise DirectoryMismatchError(f"{path} is not the data directory of a node of a cluster")
    directory = ClusterDirectory.open(replace(config, data_dir=path), Random(), SystemClock())
    try:
        mark = directory.mark()
        if mark is None:
            raise DirectoryMismatchError(f"{path} was never part of a cluster; name the directory of a node that was")
        disks = NodeDisks(directory.disks, directory.cluster_id, directory.node_id, durable=True, timeout_s=config.disk_timeout_s)
        return mark, await disks.configurations(), directory.node_id, directory.feature_level()
    finally:
        directory.close()
