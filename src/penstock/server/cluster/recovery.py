"""Rebuilds what coordination has lost from the data directories of nodes: the identity of the cluster and its groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from penstock.blob import DYNAMIC_GROUPS_FROM, Configuration
from penstock.coordination import ClusterIdentity, ClusterMark, Coordination
from penstock.core.clock import SystemClock
from penstock.server.cluster.directory import ClusterDirectory
from penstock.server.cluster.disks import NodeDisks
from penstock.server.config import NodeConfig
from penstock.server.data_directory import CLUSTER_NAME
from penstock.server.errors import DirectoryMismatchError


async def recover(
    coordination: Coordination, config: NodeConfig, directories: Sequence[Path]
) -> tuple[ClusterIdentity, list[int]]:
    """Bring an empty or old store up to date. Returns the identity and the groups that were found; of each group the newest
    configuration on any disk counts, and disks of other nodes that have a newer one win as soon as they are registered."""
    newest: dict[int, Configuration] = {}
    marks: list[ClusterMark] = []
    for path in directories:
        mark, found = await _read(config, path)
        marks.append(mark)
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
    identity = ClusterIdentity(cluster_id=mark.cluster_id, name=config.cluster_name, kind=first.erasure.value)
    values = {group: configuration.pack() for group, configuration in newest.items()}
    return await coordination.recover_cluster(identity, mark, values), sorted(newest)


async def _read(config: NodeConfig, path: Path) -> tuple[ClusterMark, list[Configuration]]:
    if not (path / CLUSTER_NAME).exists():
        raise DirectoryMismatchError(f"{path} is not the data directory of a node of a cluster")
    directory = ClusterDirectory.open(replace(config, data_dir=path), Random(), SystemClock())
    try:
        mark = directory.mark()
        if mark is None:
            raise DirectoryMismatchError(f"{path} was never part of a cluster; name the directory of a node that was")
        disks = NodeDisks(directory.disks, directory.cluster_id, directory.node_id, durable=True, timeout_s=config.disk_timeout_s)
        return mark, await disks.configurations()
    finally:
        directory.close()
