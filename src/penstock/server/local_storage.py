"""The storage of a node whose disks are all its own: one group, as its data directory describes it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

from penstock.blob import BlobStorage, Disk, GroupConfig, GroupOptions, VDiskOptions, open_local_vdisk
from penstock.broker.errors import StorageGroupMissingError
from penstock.core.clock import SystemClock
from penstock.core.errors import ConfigError, DataMissingError
from penstock.server.config import NodeConfig
from penstock.server.data_directory import DataDirectory
from penstock.server.errors import DirectoryInUseError, DirectoryMismatchError, DirectoryUnusableError

log = logging.getLogger(__name__)


async def open_storage(config: NodeConfig, directory: DataDirectory, group: int, random: Random) -> BlobStorage:
    """Open the group of a data directory, and form it if it is new. Raises ConfigError with what to change."""
    layout = directory.layout
    durable = config.durability == "fsync"

    async def open_vdisk(group: GroupConfig, order: int) -> Disk:
        await asyncio.to_thread(directory.check_disk, order)
        return await _open_disk(group, order, durable=durable, timeout_s=config.disk_timeout_s)

    options = GroupOptions(vdisk=VDiskOptions(accept_loss=config.accept_data_loss))
    storage = BlobStorage(clock=SystemClock(), random=random, open_vdisk=open_vdisk, options=options)
    storage.add_group(GroupConfig(group, layout.erasure, layout.disks), None if layout.formed else directory.note_formed)
    try:
        with start_errors(layout.disks):
            life = await storage.life(group)
    except BaseException as error:
        await storage.close()
        known = (DirectoryInUseError, DirectoryMismatchError, DirectoryUnusableError)
        if isinstance(error, ConfigError) and not isinstance(error, known):
            raise DirectoryMismatchError(str(error)) from error
        raise
    log.info("storage is open: %s, %d of %d disks", layout.erasure.value, len(life.vdisks), len(layout.disks))
    return storage


@contextmanager
def start_errors(disks: Sequence[Path]) -> Iterator[None]:
    """Raises what a broker misses on the storage of this node as an error of its data directory."""
    try:
        yield
    except DataMissingError as error:
        names = ", ".join(map(str, disks[:3]))
        raise DirectoryMismatchError(f"data is missing from {names}: {error}, with --accept-data-loss true") from error
    except StorageGroupMissingError as error:
        worker = error.group + 1  # each has a group of its own
        raise DirectoryMismatchError(
            f"topic {error.topic!r} has partitions on worker {worker}; start with --workers {worker} or more, and delete such "
            "topics before there are fewer"
        ) from error


async def _open_disk(group: GroupConfig, order: int, *, durable: bool, timeout_s: float) -> Disk:
    try:
        return await open_local_vdisk(group, order, durable=durable, timeout_s=timeout_s)
    except ConfigError as error:
        if isinstance(error.__cause__, BlockingIOError):
            raise DirectoryInUseError(str(error)) from error
        raise DirectoryUnusableError(str(error)) from error
