"""Makes the data directory of a single node that of the first node of a new cluster. Its storage group and its id stay as they
are; only marks are written: in the store, on the disks and in the directory. What was interrupted can be repeated."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import uuid
from pathlib import Path

from penstock.blob import Configuration, Seat
from penstock.coordination import ClusterIdentity, ClusterMark, Coordination, NodeRecord
from penstock.server.cluster.directory import ClusterDirectory
from penstock.server.cluster.disks import mark_fields
from penstock.server.data_directory import CLUSTER_NAME, NODE_NAME, lock_directory, read_layout
from penstock.server.disk_marks import MARK_NAME, NodeLayout, unusable
from penstock.server.errors import DirectoryMismatchError
from penstock.server.json_file import write_fields

SINGLE_NODE_GROUP = 0
"""The storage group of a single node; no group that a cluster makes has this id."""


async def convert(coordination: Coordination, path: Path, *, cluster_name: str, kind: str, node_name: str) -> ClusterIdentity:
    """Create a cluster whose first node has this directory, an absolute path. ConfigError if the directory or the store does not
    allow it."""
    lock = await asyncio.to_thread(_lock, path)
    try:
        layout = read_layout(path)
        if layout is None or not layout.started or layout.node_id == 0:
            raise DirectoryMismatchError(
                f"{path} has not been used by a node with an id above 0, so there is nothing to take over; create the cluster "
                "without it"
            )
        cluster_id = _uuid_of(layout.cluster_id)
        wanted = ClusterIdentity(cluster_id=str(cluster_id), name=cluster_name, kind=kind)
        identity = await coordination.create_cluster(wanted)
        if identity.cluster_id != wanted.cluster_id:
            raise DirectoryMismatchError(
                f"cluster {cluster_name} exists (id {identity.cluster_id}) and was not made of {path}; choose another --name"
            )
        node = NodeRecord(name=node_name, directory_id=str(uuid.uuid5(cluster_id, "first node")))
        seats = tuple(Seat(layout.node_id, f"disk{order}") for order in range(len(layout.disks)))
        configuration = Configuration(SINGLE_NODE_GROUP, 1, layout.erasure, seats)
        await coordination.adopt_node(layout.node_id, node, SINGLE_NODE_GROUP, configuration.pack())
        await coordination.open()
        directory = ClusterDirectory(path, lock, node.directory_id, layout.disks)
        await asyncio.to_thread(_write, directory, layout, identity.cluster_id, coordination.mark)
    finally:
        os.close(lock)
    return identity


def _lock(path: Path) -> int:
    if (path / CLUSTER_NAME).exists() and not (path / NODE_NAME).exists():
        raise DirectoryMismatchError(f"{path} is that of a node of a cluster already; start it with --etcd")
    if not (path / NODE_NAME).exists():
        raise DirectoryMismatchError(f"{path} is not the data directory of a single node; name one")
    if (path / "workers").exists():
        raise DirectoryMismatchError(f"{path} has workers, which cannot become nodes of a cluster; copy the topics over instead")
    return lock_directory(path, NODE_NAME)


def _write(directory: ClusterDirectory, layout: NodeLayout, cluster_id: str, mark: ClusterMark) -> None:
    """The disks first: with them marked only a repetition of this goes on. Last the file by which it was a single node's."""
    try:
        for order, disk in enumerate(layout.disks):
            write_fields(disk / MARK_NAME, mark_fields(cluster_id, layout.node_id, order))
        directory.keep_mark(mark)
        directory.join(cluster_id, layout.node_id)
        (directory.path / NODE_NAME).unlink()
    except OSError as error:
        raise unusable(directory.path, error) from error


def _uuid_of(cluster_id: str) -> uuid.UUID:
    """The id of the cluster in the form that clusters have: the same 16 bytes, if it is of the usual form."""
    try:
        raw = base64.urlsafe_b64decode(cluster_id + "==")
    except ValueError:
        raw = b""
    return uuid.UUID(bytes=raw if len(raw) == 16 else hashlib.sha256(cluster_id.encode()).digest()[:16])
