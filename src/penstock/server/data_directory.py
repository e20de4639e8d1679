"""The data directory of a node: locked while a node uses it, with the settings it was created with.

DATA/lock                       held by the process that works here
DATA/node.json                  {"format": 1, "cluster_id": …, "node_id": 1, "erasure": "none", "disks": ["disk0"],
                                 "formed": true,     false only until the storage group has formed
                                 "started": true}    false only until the broker has started once
DATA/secret.json                {"format": 1, "secret": 64 hexadecimal digits}: the key of this node's tokens
DATA/disk0/                     the disks, unless they are elsewhere
"""

from __future__ import annotations

import asyncio
import base64
import fcntl
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

from penstock.blob import Erasure
from penstock.server.config import NodeConfig
from penstock.server.disk_marks import NodeLayout, check_disks, check_mark, unusable
from penstock.server.errors import BadSettingError, DirectoryInUseError, DirectoryMismatchError
from penstock.server.json_file import read_fields, write_fields

log = logging.getLogger(__name__)

LOCK_NAME: Final = "lock"
NODE_NAME: Final = "node.json"
CLUSTER_NAME: Final = "cluster.json"  # in its place for a node of a cluster
SECRET_NAME: Final = "secret.json"
SECRET_SIZE: Final = 32
FIRST_NODE_ID: Final = 1


class DataDirectory:
    """A data directory that this process has locked. `open` locks it, `close` unlocks it."""

    def __init__(self, path: Path, lock: int, layout: NodeLayout, disk_timeout_s: float) -> None:
        self.path = path
        self.layout = layout
        self._lock = lock
        self._disk_timeout_s = disk_timeout_s

    @classmethod
    def open(cls, config: NodeConfig, random: Random, *, cluster_id: str = "", lock: int | None = None) -> DataDirectory:
        """Lock the directory, then compare its stored settings with the configuration. Nothing is written before both succeed.
        With a `cluster_id` it must be of that cluster, or new; a `lock` that was inherited is used as it is."""
        path = config.data_dir.absolute()
        if (path / CLUSTER_NAME).exists():
            raise DirectoryMismatchError(
                f"{path} is the data directory of a node of a cluster; start it with --etcd, or name another --data-dir"
            )
        if lock is None:
            lock = lock_directory(path, NODE_NAME)
        try:
            stored = read_layout(path)
            if cluster_id and stored is not None and stored.cluster_id != cluster_id:
                raise DirectoryMismatchError(
                    f"{path} is of cluster {stored.cluster_id}, not {cluster_id}; restore the right one, or move it away if it "
                    "holds nothing"
                )
            layout = _new_layout(config, path, random, cluster_id) if stored is None else _agreed_layout(config, path, stored)
            layout = check_disks(layout, stored, config.disk_timeout_s)
            if layout != stored:
                _write_node(path, layout)
        except BaseException:
            os.close(lock)
            raise
        return cls(path, lock, layout, config.disk_timeout_s)

    def check_disk(self, order: int) -> None:
        """Raise OSError unless this disk has this node's mark. An empty disk is marked only at the start of a node: later, an
        empty directory may be a disk that is not mounted."""
        check_mark(self.layout, order, self._disk_timeout_s)

    def secret(self, random: Random) -> bytes:
        """The secret of this node, created on first use. It is not in the storage, so that a copy of the disks is not enough to
        forge tokens. Deleting its file invalidates all tokens."""
        return node_secret(self.path, random)

    async def note_formed(self) -> None:
        """Record that the group has formed: from now on an empty disk is a lost one."""
        await self._note(self.layout._replace(formed=True))

    async def note_started(self) -> None:
        """Record that a broker has started: from now on missing tablets are lost ones."""
        if not self.layout.started:
            await self._note(self.layout._replace(started=True))

    async def _note(self, layout: NodeLayout) -> None:
        await asyncio.to_thread(_write_node, self.path, layout)
        self.layout = layout

    @property
    def lock(self) -> int:
        """The descriptor of the lock; a child process that inherits it holds the lock as well."""
        return self._lock

    def close(self) -> None:
        """Unlock the directory."""
        os.close(self._lock)


def node_secret(directory: Path, random: Random) -> bytes:
    """The secret that is kept in a data directory, created on first use."""
    path = directory / SECRET_NAME
    fields = read_fields(path, {"secret": str})
    if fields is None:
        fields = {"secret": random.randbytes(SECRET_SIZE).hex()}
        try:
            write_fields(path, fields)
        except OSError as error:
            raise unusable(directory, error) from error
    try:
        secret = bytes.fromhex(fields["secret"])
    except ValueError:
        secret = b""
    if len(secret) != SECRET_SIZE:
        raise DirectoryMismatchError(f"{path} is damaged; delete it, and clients sign in again for new tokens")
    return secret


def keep_secret(directory: Path, secret: bytes) -> None:
    """Keep another secret in a data directory in place of its own."""
    try:
        write_fields(directory / SECRET_NAME, {"secret": secret.hex()})
    except OSError as error:
        raise unusable(directory, error) from error


def lock_directory(path: Path, identity_name: str) -> int:
    """Lock a data directory, which has a file of this name once it is in use. Returns the descriptor of the lock."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        names = set(os.listdir(path))
        if identity_name not in names and (strangers := sorted(name for name in names if not _is_ours(name, identity_name))):
            raise DirectoryMismatchError(
                f"{path} is not a data directory of Penstock and holds other files ({', '.join(strangers[:3])}); "
                "name an empty directory, or one that is to be made"
            )
        lock = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unusable(path, error) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise DirectoryInUseError(f"{path} is in use by another process; stop that one, or name another --data-dir") from error
    return lock


def _is_ours(name: str, identity_name: str) -> bool:
    return name in (LOCK_NAME, "lost+found") or name.startswith((identity_name, "disk"))


def read_layout(path: Path) -> NodeLayout | None:
    """What the data directory of a single node was created as; None if it is new."""
    fields = read_fields(path / NODE_NAME, {"cluster_id": str, "node_id": int, "erasure": str, "disks": list})
    if fields is None:
        return None
    try:
        erasure = Erasure(fields["erasure"])
    except ValueError:
        raise DirectoryMismatchError(f"{path / NODE_NAME}: unknown erasure {fields['erasure']!r}; upgrade Penstock") from None
    disks = tuple(path / disk for disk in fields["disks"])
    # Without this field the directory was created by an older version, and its group has formed.
    formed, started = fields.get("formed", True) is not False, fields.get("started") is True
    return NodeLayout(fields["cluster_id"], fields["node_id"], erasure, disks, formed, started)


def _write_node(path: Path, layout: NodeLayout) -> None:
    # Disks below the directory move with it.
    disks = [str(disk.relative_to(path)) if disk.is_relative_to(path) else str(disk) for disk in layout.disks]
    fields = {
        "cluster_id": layout.cluster_id,
        "node_id": layout.node_id,
        "erasure": layout.erasure.value,
        "disks": disks,
        "formed": layout.formed,
        "started": layout.started,
    }
    try:
        write_fields(path / NODE_NAME, fields)
    except OSError as error:
        raise unusable(path, error) from error


def _new_layout(config: NodeConfig, path: Path, random: Random, cluster_id: str) -> NodeLayout:
    erasure = Erasure(config.erasure or "none")
    disks = _absolute(config.disks) or tuple(path / f"disk{order}" for order in range(erasure.shape.disks))
    if erasure is not Erasure.NONE and config.disks is None:
        log.warning("the disks of the %s group are all below %s: they protect from nothing that takes it", erasure.value, path)
    _check_shape(erasure, disks)
    # As Kafka writes its ids: 16 bytes in URL-safe base64.
    cluster_id = cluster_id or base64.urlsafe_b64encode(random.randbytes(16)).rstrip(b"=").decode()
    return NodeLayout(cluster_id, FIRST_NODE_ID if config.node_id is None else config.node_id, erasure, disks, formed=False)


def _agreed_layout(config: NodeConfig, path: Path, stored: NodeLayout) -> NodeLayout:
    """Returns the stored layout with the disks as they are named now. Raises an error if the configuration contradicts it."""
    if config.erasure is not None and config.erasure != stored.erasure.value:
        raise DirectoryMismatchError(
            f"{path} was made with erasure {stored.erasure.value}, not {config.erasure}, and that cannot be changed; "
            "leave the setting out, or name another --data-dir"
        )
    if config.node_id is not None and config.node_id != stored.node_id:
        raise DirectoryMismatchError(
            f"{path} was made for node {stored.node_id}, not {config.node_id}; leave the setting out, or name another --data-dir"
        )
    disks = _absolute(config.disks) or stored.disks
    _check_shape(stored.erasure, disks)
    return stored._replace(disks=disks)


def _absolute(disks: Sequence[Path] | None) -> tuple[Path, ...]:
    return tuple(disk.absolute() for disk in disks or ())


def _check_shape(erasure: Erasure, disks: Sequence[Path]) -> None:
    wanted = erasure.shape.disks
    if len(disks) != wanted:
        raise BadSettingError(
            f"erasure {erasure.value} needs {wanted} disk{'s' if wanted > 1 else ''}, but {len(disks)} "
            f"{'are' if len(disks) > 1 else 'is'} named; name as many, or choose another --erasure"
        )
    real = [Path(os.path.realpath(disk)) for disk in disks]
    twice = next((disk for at, disk in enumerate(real) if disk in real[:at]), None)
    if twice is not None:
        raise BadSettingError(f"disk {twice} is named twice; one failure would take two disks of the group")
