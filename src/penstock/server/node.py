"""One node: storage, broker and gateways, started from the ground up and stopped from the top down."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from random import Random, SystemRandom  # noqa: TID251 - ids of payloads and sessions must not be guessed

from penstock.blob import BlobStorage, Disk, GroupConfig, GroupOptions, VDiskOptions, open_local_vdisk
from penstock.core.clock import SystemClock
from penstock.core.errors import ConfigError, DataMissingError
from penstock.server.broker_host import BrokerHost, MountConsole, broker_options
from penstock.server.config import NodeConfig
from penstock.server.data_directory import DataDirectory
from penstock.server.errors import DirectoryInUseError, DirectoryMismatchError, DirectoryUnusableError
from penstock.server.metrics import Observatory
from penstock.server.security import tls_context
from penstock.server.tracing import start_tracing

log = logging.getLogger(__name__)

GROUP = 0


class Node:
    """A running node. Create it with `start`; `stop` waits for requests in flight, then closes everything."""

    def __init__(self, config: NodeConfig, directory: DataDirectory, mount_console: MountConsole | None) -> None:
        self.config = config
        self.layout = directory.layout
        self.data_dir = directory.path
        self.observatory = Observatory(clock=SystemClock())
        self._host = BrokerHost(config, directory.layout, self.observatory, mount_console)
        self.listeners = self._host.listeners
        self._closing = AsyncExitStack()

    @classmethod
    async def start(cls, config: NodeConfig, mount_console: MountConsole | None = None) -> Node:
        """Lock the data directory, open the storage, start the broker and listen. Raises ConfigError with what to change if it
        cannot. The console is a layer above: `mount_console` mounts it beside the admin API."""
        # gRPC's core writes a line for every malformed call to standard error, bypassing our log and its limit.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        random = SystemRandom()
        options = broker_options(config, GROUP)
        tls_context(config)  # reports wrong files before anything is created
        directory = await asyncio.to_thread(DataDirectory.open, config, random)
        if options.security is not None:
            secret = await asyncio.to_thread(directory.secret, options.security.random)
            options = replace(options, security=replace(options.security, secret=secret))
        node = cls(config, directory, mount_console)
        node._closing.callback(directory.close)
        node.observatory.watch_loop()
        node._closing.push_async_callback(node.observatory.stop_watching_loop)
        try:
            node._start_tracing()
            storage = await node._open_storage(directory, random)
            options = replace(options, must_exist=directory.layout.started and not config.accept_data_loss)
            try:
                await node._host.start(storage, options, random, directory.note_started)
            except DataMissingError as error:
                raise _data_missing(error, directory.layout.disks) from error
            node._closing.push_async_callback(node._host.stop)
        except BaseException:
            await node._closing.aclose()
            raise
        return node

    async def stop(self) -> None:
        """Accepts no more requests, finishes those in flight, then stops the broker and closes the storage."""
        await self._closing.aclose()

    async def wait_failure(self) -> None:
        """Raise why this node cannot go on; a single one always tries."""
        await asyncio.Event().wait()

    async def _open_storage(self, directory: DataDirectory, random: Random) -> BlobStorage:
        layout = self.layout
        durable = self.config.durability == "fsync"

        async def open_vdisk(group: GroupConfig, order: int) -> Disk:
            await asyncio.to_thread(directory.check_disk, order)
            return await _open_disk(group, order, durable=durable, timeout_s=self.config.disk_timeout_s)

        group = GroupConfig(GROUP, layout.erasure, layout.disks)
        vdisk_options = VDiskOptions(accept_loss=self.config.accept_data_loss)
        storage = BlobStorage(
            clock=SystemClock(), random=random, open_vdisk=open_vdisk, options=GroupOptions(vdisk=vdisk_options)
        )
        storage.add_group(group, None if layout.formed else directory.note_formed)
        self._closing.push_async_callback(storage.close)
        try:
            life = await storage.life(GROUP)
        except (DirectoryInUseError, DirectoryUnusableError):
            raise
        except DataMissingError as error:
            raise _data_missing(error, layout.disks) from error
        except ConfigError as error:
            raise DirectoryMismatchError(str(error)) from error
        log.info("storage is open: %s, %d of %d disks", layout.erasure.value, len(life.vdisks), len(layout.disks))
        return storage

    def _start_tracing(self) -> None:
        config = self.config
        tracing = start_tracing(config.otel_endpoint, node_id=self.layout.node_id, cluster=config.cluster_name)
        if tracing is not None:
            self.observatory.trace(tracing)
            self._closing.push_async_callback(asyncio.to_thread, tracing.stop)


async def _open_disk(group: GroupConfig, order: int, *, durable: bool, timeout_s: float) -> Disk:
    try:
        return await open_local_vdisk(group, order, durable=durable, timeout_s=timeout_s)
    except ConfigError as error:
        if isinstance(error.__cause__, BlockingIOError):
            raise DirectoryInUseError(str(error)) from error
        raise DirectoryUnusableError(str(error)) from error


def _data_missing(error: DataMissingError, disks: Sequence[Path]) -> DirectoryMismatchError:
    names = ", ".join(map(str, disks[:3]))
    return DirectoryMismatchError(f"data is missing from {names}: {error}, with --accept-data-loss true")
