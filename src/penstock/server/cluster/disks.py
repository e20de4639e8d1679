"""The disks of a node of a cluster: each is marked with the cluster, the node and its number there, by which it is named.

    DISK/penstock-disk.json         {"format": 1, "cluster_id": …, "erasure": "cluster", "node_id": 2, "disk": 0}
    DISK/82000000-0-1-0/            a VDisk (see penstock.blob); a disk may have VDisks of several groups

An empty disk is marked only when the node starts: later, an empty directory may be a disk that is not mounted.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from penstock.blob import Configuration, Disk, GroupConfig, LocalDisk, newest_configuration
from penstock.core.errors import ConfigError
from penstock.server.disk_marks import MARK_NAME, all_within
from penstock.server.errors import DirectoryMismatchError
from penstock.server.json_file import read_fields, write_fields

log = logging.getLogger(__name__)

KIND: Final = "cluster"  # stands where the mark of a single node's disk has its erasure
_VDISK_NAME: Final = re.compile(r"[0-9a-f]{8}-[0-9]+-[0-9]+-[0-9]+")


class NodeDisks:
    """The disks of this node, named disk0, disk1 and so on in the order in which they are given."""

    def __init__(self, paths: Sequence[Path], cluster_id: str, node_id: int, *, durable: bool, timeout_s: float) -> None:
        self.paths = {f"disk{number}": path for number, path in enumerate(paths)}
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._durable = durable
        self._timeout_s = timeout_s

    def check(self) -> None:
        """Check that every disk is empty or this node's, then mark new ones. One that cannot be used now is left out."""
        results = all_within(self._timeout_s, [partial(self._state, name) for name in self.paths])
        for name, is_new in zip(self.paths, results, strict=True):
            if isinstance(is_new, OSError):
                log.error("disk %s cannot be used: %s", self.paths[name], is_new.strerror)
            elif isinstance(is_new, Exception):
                raise is_new
        new = [name for name, is_new in zip(self.paths, results, strict=True) if is_new is True]
        for name, error in zip(new, all_within(self._timeout_s, [partial(self._mark, name) for name in new]), strict=True):
            if isinstance(error, OSError):
                log.error("disk %s cannot be used: %s", self.paths[name], error.strerror)

    def states(self) -> dict[str, str]:
        """Each disk by name: empty if it can be used, otherwise why it cannot."""
        results = all_within(self._timeout_s, [partial(self._expect_mark, name) for name in self.paths])
        return {
            name: (str(result) if isinstance(result, Exception) else "") for name, result in zip(self.paths, results, strict=True)
        }

    def open_blocking(self, name: str) -> Path:
        """The directory of a disk; OSError if it is not what it was when the node started."""
        if name not in self.paths:
            raise OSError(errno.ENODEV, f"this node has no disk {name}")
        (result,) = all_within(self._timeout_s, [partial(self._expect_mark, name)])
        if isinstance(result, Exception):
            raise result
        return self.paths[name]

    async def open(self, directory: Path) -> Disk:
        """The directory of a VDisk as its disk; OSError if it cannot be used now."""
        try:
            return await LocalDisk.open(directory, durable=self._durable, timeout_s=self._timeout_s)
        except ConfigError as error:
            if isinstance(error.__cause__, OSError):
                raise error.__cause__ from error
            raise

    def configurations(self) -> tuple[list[tuple[str, Configuration]], dict[str, str]]:
        """The configuration that each VDisk on these disks stores, with the name of the disk, and why other disks cannot be read.
        VDisks may be in use meanwhile."""
        stored: list[tuple[str, Configuration]] = []
        unreadable: dict[str, str] = {}
        results = all_within(self._timeout_s, [partial(self._stored, name) for name in self.paths])
        for name, result in zip(self.paths, results, strict=True):
            if isinstance(result, Exception):
                unreadable[name] = str(result)
            else:
                stored += ((name, configuration) for configuration in result)
        return stored, unreadable

    def _stored(self, name: str) -> list[Configuration]:
        self._expect_mark(name)
        children = sorted(child for child in self.paths[name].iterdir() if _VDISK_NAME.fullmatch(child.name))
        return [configuration for child in children if (configuration := newest_configuration(child)) is not None]

    def _state(self, name: str) -> bool:
        """Whether a disk is empty; DirectoryMismatchError if it is neither that nor this node's."""
        path = self.paths[name]
        mark = read_fields(path / MARK_NAME, {"cluster_id": str, "erasure": str, "disk": int})
        if mark is not None:
            if not self._is_ours(mark, name):
                raise DirectoryMismatchError(
                    f"{path} is disk {mark['disk']} of node {mark.get('node_id', '?')} of cluster {mark['cluster_id']}, and not "
                    f"{name} of node {self._node_id} of cluster {self._cluster_id}; name the disks in their order"
                )
            return False
        names = set(os.listdir(path)) - {"lost+found", MARK_NAME + ".new"} if path.exists() else set()
        if names:
            raise DirectoryMismatchError(
                f"disk {path} holds other files ({', '.join(sorted(names)[:3])}); name an empty directory"
            )
        return True

    def _mark(self, name: str) -> None:
        path = self.paths[name]
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_fields(path / MARK_NAME, mark_fields(self._cluster_id, self._node_id, _number(name)))

    def _expect_mark(self, name: str) -> None:
        path = self.paths[name]
        mark = read_fields(path / MARK_NAME, {"cluster_id": str, "erasure": str, "disk": int})
        if mark is None:
            raise FileNotFoundError(
                errno.ENOENT, f"{path} is empty or not mounted; mount it, or restart the node to have an empty disk refilled"
            )
        if not self._is_ours(mark, name):
            raise OSError(errno.EINVAL, f"{path} is another disk than {name} of this node; mount the right one there")

    def _is_ours(self, mark: dict[str, Any], name: str) -> bool:
        wanted = (self._cluster_id, KIND, self._node_id, _number(name))
        return (mark["cluster_id"], mark["erasure"], mark.get("node_id"), mark["disk"]) == wanted


def mark_fields(cluster_id: str, node_id: int, number: int) -> dict[str, object]:
    """The mark of a disk."""
    return {"cluster_id": cluster_id, "erasure": KIND, "node_id": node_id, "disk": number}


def group_config(configuration: Configuration, node_id: int, disks: NodeDisks | None) -> GroupConfig:
    """A group as the storage of this node shows it: disks of other nodes have a name in place of a path."""
    paths = tuple(
        disks.paths[seat.disk]
        if disks is not None and seat.node == node_id and seat.disk in disks.paths
        else Path(f"node{seat.node}") / seat.disk
        for seat in configuration.seats
    )
    return GroupConfig(configuration.group, configuration.erasure, paths, configuration.generation)


def _number(name: str) -> int:
    return int(name.removeprefix("disk"))
