"""One node: storage, broker and gateways, started from the ground up and stopped from the top down."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from dataclasses import replace
from random import SystemRandom  # noqa: TID251 - ids of payloads and sessions must not be guessed

from penstock.core.clock import SystemClock
from penstock.server.broker_host import BrokerHost, MountConsole, broker_options
from penstock.server.config import NodeConfig
from penstock.server.data_directory import DataDirectory
from penstock.server.local_storage import open_storage, start_errors
from penstock.server.metrics import Observatory
from penstock.server.security import tls_context
from penstock.server.tracing import start_tracing

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
            storage = await open_storage(config, directory, GROUP, random)
            node._closing.push_async_callback(storage.close)
            must_exist = directory.layout.started and not config.accept_data_loss
            options = replace(options, must_exist=must_exist, storage_groups=frozenset({GROUP}))
            with start_errors(directory.layout.disks):
                await node._host.start(storage, options, random, directory.note_started)
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

    def _start_tracing(self) -> None:
        config = self.config
        tracing = start_tracing(config.otel_endpoint, node_id=self.layout.node_id, cluster=config.cluster_name)
        if tracing is not None:
            self.observatory.trace(tracing)
            self._closing.push_async_callback(asyncio.to_thread, tracing.stop)
