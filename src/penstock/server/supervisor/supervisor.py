"""The supervisor of the workers of one machine: starts them, restarts those that end, and serves them coordination.

It serves no client. Its coordination store is in memory: what must outlive it is in the directories of the workers. When it is
killed the workers stop, and the next supervisor waits until they have.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from random import SystemRandom  # noqa: TID251 - the id of a new cluster must not be guessed
from typing import Any, Final

from penstock.blob import Configuration, Erasure, Seat
from penstock.coordination import (
    ClusterIdentity,
    KeyTable,
    MemoryStore,
    NodeRecord,
    SocketServer,
    end_member,
    is_abandoned,
    seed_store,
)
from penstock.core.clock import boot_time
from penstock.core.errors import ConfigError
from penstock.core.periodic import cancel_tasks
from penstock.server.broker_host import listener_modules
from penstock.server.config import NodeConfig
from penstock.server.data_directory import DataDirectory
from penstock.server.disk_marks import unusable
from penstock.server.errors import DirectoryInUseError, DirectoryMismatchError
from penstock.server.listener import Listener, check_ports
from penstock.server.security import tls_context
from penstock.server.supervisor.restart_backoff import RestartBackoff
from penstock.server.supervisor.worker_config import (
    COORDINATION_SOCKET,
    socket_directory,
    with_free_ports,
    worker_configs,
    worker_name,
)
from penstock.server.supervisor.worker_order import WorkerOrder
from penstock.server.supervisor.worker_process import WorkerProcess

log = logging.getLogger(__name__)

STOP_S: Final = 20.0
"""How long a worker may take to stop once its requests in flight are finished."""
LOOK_S: Final = 0.2
SPARE_S: Final = 3.0
"""How soon there is a spare process again; a worker that ends again and again does not get one each time."""


class WorkerFailedError(ConfigError):
    """A worker has ended. `exit_code` is that of its process."""

    code = "worker_failed"

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Supervisor:
    """Running workers. Create it with `start`; `stop` stops them all."""

    def __init__(self, config: NodeConfig, program: Sequence[str]) -> None:
        self.config = config
        self.data_dir = config.data_dir.absolute()
        self._program = program
        self._store = MemoryStore(KeyTable("supervisor"), boot_time)
        self._orders: list[WorkerOrder] = []
        self._workers: dict[int, WorkerProcess] = {}
        self._spare: WorkerProcess | None = None
        self._keepers: list[asyncio.Task[None]] = []
        self._closing = AsyncExitStack()

    @classmethod
    async def start(cls, config: NodeConfig, program: Sequence[str]) -> Supervisor:
        """Lock the directories of all workers and start these; returns when all serve. `program` is the command of a worker.
        Raises ConfigError with what to change."""
        tls_context(config)  # reports wrong files before anything is created
        configs = with_free_ports(worker_configs(config), _free_ports)
        supervisor = cls(config, program)
        try:
            await supervisor._open(configs)
            await supervisor._start_workers()
        except BaseException:
            await supervisor.stop()
            raise
        return supervisor

    @property
    def listeners(self) -> dict[str, Listener]:
        """The listeners of worker 1, which are those that clients know."""
        return self._listeners(1)

    def described_workers(self) -> list[dict[str, Any]]:
        """The workers that run, with process ids and listeners."""
        return [
            {
                "worker": order.worker,
                "node_id": order.node_id,
                "pid": self._workers[order.worker].pid,
                "listeners": {name: listener._asdict() for name, listener in self._listeners(order.worker).items()},
            }
            for order in self._orders
            if order.worker in self._workers
        ]

    async def wait_failure(self) -> None:
        """Raise why the workers cannot go on; they are always tried again."""
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """Stop all workers, each after its requests in flight."""
        await cancel_tasks(self._keepers)
        if self._spare is not None:
            self._spare.kill()
            await self._spare.wait()
        timeout_s = self.config.drain_timeout_s + STOP_S
        await asyncio.gather(*(worker.stop(timeout_s) for worker in self._workers.values()))
        await self._closing.aclose()

    def kill(self) -> None:
        """Kill all workers at once."""
        for worker in (*self._workers.values(), *(() if self._spare is None else (self._spare,))):
            worker.kill()

    # Starting.

    async def _open(self, configs: Sequence[NodeConfig]) -> None:
        """Lock the directories, and serve what the workers agree on."""
        directories = await self._lock_directories(configs)
        for config in configs:  # those of an earlier supervisor have ended by now
            check_ports(config)
        # All workers use it: made by several of them at once, it would not be the same.
        await asyncio.to_thread(directories[0].secret, SystemRandom())
        self.layout = directories[0].layout
        groups = {directory.layout.node_id: number for number, directory in enumerate(directories)}
        self._orders = [
            WorkerOrder(
                worker=number,
                node_id=directory.layout.node_id,
                config=config,
                lock=directory.lock,
                data_dir=str(self.data_dir),
                groups=groups,
            )
            for number, (config, directory) in enumerate(zip(configs, directories, strict=True), 1)
        ]
        await seed_store(
            self._store,
            ClusterIdentity(cluster_id=self.layout.cluster_id, name=self.config.cluster_name, kind=Erasure.NONE.value),
            {node_id: NodeRecord(name=worker_name(group + 1), directory_id=str(node_id)) for node_id, group in groups.items()},
            {group: Configuration(group, 1, Erasure.NONE, (Seat(node_id, "disk0"),)).pack() for node_id, group in groups.items()},
        )
        server = SocketServer(self._store, socket_directory(self.data_dir) / COORDINATION_SOCKET)
        await server.start()
        self._closing.push_async_callback(self._store.close)
        self._closing.push_async_callback(server.close)

    async def _lock_directories(self, configs: Sequence[NodeConfig]) -> list[DataDirectory]:
        """Open the directory of every worker. The locks stay here, so that nothing else uses one between a worker's end and its
        restart; workers inherit them, so that nothing else uses one while they outlive this process."""
        sockets = socket_directory(self.data_dir)
        with ExitStack() as opened:
            first = await self._open_directory(configs[0], "")
            opened.callback(first.close)
            directories = [first]
            for number, config in enumerate(configs[1:], 1):
                numbered = replace(config, node_id=first.layout.node_id + number)
                directories.append(await self._open_directory(numbered, first.layout.cluster_id))
                opened.callback(directories[-1].close)
            if first.layout.erasure is not Erasure.NONE:
                raise DirectoryMismatchError(
                    f"{first.path} was made with erasure {first.layout.erasure.value}, and workers store one copy; leave workers "
                    "out, or name another --data-dir"
                )
            try:
                sockets.mkdir(mode=0o700, exist_ok=True)
            except OSError as error:
                raise unusable(sockets, error) from error
            self._closing.enter_context(opened.pop_all())
        return directories

    async def _open_directory(self, config: NodeConfig, cluster_id: str) -> DataDirectory:
        """Open a directory. A supervisor that was killed has left its socket, and workers that are stopping: these are waited
        for."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.config.drain_timeout_s + STOP_S
        while True:
            try:
                return await asyncio.to_thread(DataDirectory.open, config, SystemRandom(), cluster_id=cluster_id)
            except DirectoryInUseError:
                if not is_abandoned(socket_directory(self.data_dir) / COORDINATION_SOCKET) or loop.time() > deadline:
                    raise
            await asyncio.sleep(LOOK_S)

    async def _start_workers(self) -> None:
        """Start all workers at once, and wait until they serve. WorkerFailedError if one ends before that."""
        loop = asyncio.get_running_loop()
        first_starts: list[asyncio.Future[None]] = []
        for order in self._orders:
            first_starts.append(loop.create_future())
            keeper = self._keep(order, first_starts[-1])
            self._keepers.append(asyncio.create_task(keeper, name=f"worker-{order.worker}"))
        await asyncio.gather(*first_starts)
        self._keepers.append(asyncio.create_task(self._keep_spare(), name="spare-worker"))

    # Running.

    async def _keep(self, order: WorkerOrder, first_start: asyncio.Future[None]) -> None:
        """Keep a worker running. `first_start` is done when it serves for the first time, or fails."""
        backoff = RestartBackoff()
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                ending = await self._run(order, first_start, began)
            except OSError as error:  # no process or descriptor is to be had
                ending = WorkerFailedError(f"worker {order.worker} cannot be started: {error}", 1)
            if not first_start.done():
                first_start.set_exception(ending)
                return
            pause_s = backoff.next_pause_s(loop.time() - began)
            log.error("%s; starting it again in %g s", ending, pause_s)
            await asyncio.sleep(pause_s)

    async def _run(self, order: WorkerOrder, first_start: asyncio.Future[None], began: float) -> WorkerFailedError:
        """Run a worker until it ends; how it did."""
        worker = self._workers[order.worker] = await self._new_process()
        await worker.send(order)
        if await worker.wait_ready():
            if first_start.done():
                took_s = asyncio.get_running_loop().time() - began
                log.warning("worker %d serves again, %.1f s after its start", order.worker, took_s)
            else:
                first_start.set_result(None)
        exit_code = await worker.wait()
        await end_member(self._store, order.node_id)
        how = f"was killed by signal {-exit_code}" if exit_code < 0 else f"has ended with {exit_code}; its last lines say why"
        return WorkerFailedError(f"worker {order.worker} {how}", max(exit_code, 1))

    async def _new_process(self) -> WorkerProcess:
        """A process for a worker: the spare one if there is one, which has imported everything already."""
        spare, self._spare = self._spare, None
        if spare is not None and spare.exit_code is None:
            return spare
        return await self._start_process()

    async def _keep_spare(self) -> None:
        """Have a process ready for the next worker that ends."""
        while True:
            if self._spare is None or self._spare.exit_code is not None:
                self._spare = await self._start_process()
            await asyncio.sleep(SPARE_S)

    async def _start_process(self) -> WorkerProcess:
        program = (*self._program, *listener_modules(self.config))
        return await WorkerProcess.start(program, [order.lock for order in self._orders])

    def _listeners(self, number: int) -> dict[str, Listener]:
        ready = self._workers[number].ready or {}
        return {name: Listener(where["host"], where["port"]) for name, where in ready.get("listeners", {}).items()}


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("", 0))
        return [int(listener.getsockname()[1]) for listener in sockets]
