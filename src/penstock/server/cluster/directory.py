"""The data directory of a node of a cluster: which cluster and node it is, and what it saw of the store last.

DATA/lock                       held by the process that works here
DATA/cluster.json               {"format": 1, "directory_id": …, "cluster_id": …, "node_id": 2, "incarnation": …,
                                 "disks": ["disk0"]}
                                cluster_id and node_id are missing until the cluster has given this directory an id
DATA/coordination.mark          {"format": 1, "cluster_id": …, "recoveries": 0, "store_id": …, "revision": …,
                                 "feature_level": 1, "groups": [2181038080]}
                                groups are all storage groups that were ever known here
DATA/disk0/                     the disks, unless they are elsewhere
"""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from pathlib import Path
from random import Random
from typing import Final

from penstock.coordination import ClusterMark, Coordination, Position
from penstock.core.clock import Clock
from penstock.server.config import NodeConfig
from penstock.server.data_directory import CLUSTER_NAME, NODE_NAME, keep_secret, lock_directory, node_secret
from penstock.server.disk_marks import unusable
from penstock.server.errors import BadSettingError, DirectoryMismatchError
from penstock.server.json_file import read_fields, write_fields

log = logging.getLogger(__name__)

MARK_NAME: Final = "coordination.mark"


class ClusterDirectory:
    """A data directory that this process has locked, or only looks at. `open` locks it, `close` unlocks it."""

    def __init__(self, path: Path, lock: int | None, directory_id: str, disks: tuple[Path, ...]) -> None:
        self.path = path
        self.directory_id = directory_id
        self.disks = disks
        self.cluster_id = ""
        self.node_id = 0
        self.incarnation = 0
        self._lock = lock

    @classmethod
    def open(cls, config: NodeConfig, random: Random, clock: Clock) -> ClusterDirectory:
        """Lock the directory and read its identity. The incarnation increases with every open."""
        path = config.data_dir.absolute()
        if (path / NODE_NAME).exists():
            raise DirectoryMismatchError(
                f"{path} is the data directory of a single node; leave --etcd out, name another --data-dir, or make it the first "
                "node of a new cluster with `penstock cluster init --from-node`"
            )
        lock = lock_directory(path, CLUSTER_NAME)
        try:
            fields = read_fields(path / CLUSTER_NAME, {"directory_id": str, "incarnation": int}) or {}
            directory_id = fields.get("directory_id") or str(uuid.UUID(bytes=random.randbytes(16), version=4))
            directory = cls(path, lock, directory_id, _disks(config, path, fields.get("disks") or ["disk0"]))
            directory.cluster_id, directory.node_id = fields.get("cluster_id", ""), fields.get("node_id", 0)
            # By the clock as well, so that a directory that replaces a lost one is newer than that.
            directory.incarnation = max(fields.get("incarnation", 0) + 1, int(clock.wall() * 1000))
            directory._write()
        except BaseException:
            os.close(lock)
            raise
        return directory

    @classmethod
    def look(cls, path: Path) -> ClusterDirectory:
        """Read the identity in a directory without locking it; a node may be using it."""
        fields = read_fields(path / CLUSTER_NAME, {"directory_id": str, "incarnation": int}) or {}
        disks = tuple(path / disk for disk in fields.get("disks") or ["disk0"])
        directory = cls(path, None, fields.get("directory_id", ""), disks)
        directory.cluster_id, directory.node_id = fields.get("cluster_id", ""), fields.get("node_id", 0)
        return directory

    def join(self, cluster_id: str, node_id: int) -> None:
        """Note durably which node of which cluster this directory is."""
        if self.cluster_id and (self.cluster_id, self.node_id) != (cluster_id, node_id):
            raise DirectoryMismatchError(
                f"{self.path} is that of node {self.node_id} of cluster {self.cluster_id}, and not of node {node_id} of cluster "
                f"{cluster_id}; name another --data-dir"
            )
        if not self.cluster_id:
            self.cluster_id, self.node_id = cluster_id, node_id
            self._write()

    def mark(self) -> ClusterMark | None:
        """What this node saw of the store last; None if it was never part of a cluster."""
        path = self.path / MARK_NAME
        fields = read_fields(path, {"cluster_id": str, "recoveries": int, "store_id": str, "revision": int})
        if fields is None:
            if self.cluster_id:
                raise DirectoryMismatchError(
                    f"{path} is missing, though this is node {self.node_id} of cluster {self.cluster_id}; restore it from a copy"
                )
            return None
        return ClusterMark(fields["cluster_id"], fields["recoveries"], Position(fields["store_id"], fields["revision"]))

    def feature_level(self) -> int:
        """The feature level of the cluster that this node saw last."""
        fields = read_fields(self.path / MARK_NAME, {}) or {}
        return int(fields.get("feature_level", 1))

    def known_groups(self) -> frozenset[int]:
        """The storage groups of the cluster that this node has seen in the store."""
        fields = read_fields(self.path / MARK_NAME, {}) or {}
        return frozenset(fields.get("groups", ()))

    def keep_mark(self, mark: ClusterMark, feature_level: int = 1, groups: frozenset[int] = frozenset()) -> None:
        """Keep what was seen of the store, so that an older one is recognized, and a lost one rebuilt. Groups are never deleted:
        a rebuilt store may lack some."""
        fields = {
            "groups": sorted(groups | self.known_groups()),
            "feature_level": feature_level,
            "cluster_id": mark.cluster_id,
            "recoveries": mark.recoveries,
            "store_id": mark.position.store_id,
            "revision": mark.position.revision,
        }
        try:
            write_fields(self.path / MARK_NAME, fields)
        except OSError as error:
            raise unusable(self.path, error) from error

    async def shared_secret(self, coordination: Coordination, random: Random) -> bytes:
        """What all nodes of the cluster sign tokens with. Each keeps it, so that it survives the loss of coordination."""
        own = await asyncio.to_thread(node_secret, self.path, random)
        shared = await coordination.share_secret(own)
        if shared != own:
            await asyncio.to_thread(keep_secret, self.path, shared)
        return shared

    def close(self) -> None:
        """Unlock the directory."""
        if self._lock is not None:
            os.close(self._lock)

    def _write(self) -> None:
        path = self.path
        # Disks below the directory move with it.
        disks = [str(disk.relative_to(path)) if disk.is_relative_to(path) else str(disk) for disk in self.disks]
        fields: dict[str, object] = {"directory_id": self.directory_id, "incarnation": self.incarnation, "disks": disks}
        if self.cluster_id:
            fields |= {"cluster_id": self.cluster_id, "node_id": self.node_id}
        try:
            write_fields(path / CLUSTER_NAME, fields)
        except OSError as error:
            raise unusable(path, error) from error


def _disks(config: NodeConfig, path: Path, stored: list[str]) -> tuple[Path, ...]:
    disks = tuple(disk.absolute() for disk in config.disks or ()) or tuple(path / disk for disk in stored)
    real = [Path(os.path.realpath(disk)) for disk in disks]
    if len(set(real)) < len(real):
        raise BadSettingError("a disk is named twice; each VDisk needs a disk of its own")
    return disks
