"""The exports of all queues: starts those that are due, tracks their progress and what trimming must keep for them, and deletes
expired tables.

The agent calls `begin_due` in each pass; exports run beside it, a few at a time, each with one chunk in memory. A failed
export is retried with a growing backoff.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from penstock.broker.namespace import Kind, Namespace, Node
from penstock.broker.queue_agent.export_config import ExportConfig, Fragment
from penstock.broker.queue_agent.exporter import Exporter, exports_in
from penstock.broker.queue_agent.statuses import GENERIC_CODE, Status, StatusError, shown_time
from penstock.broker.queue_agent.trimming import Holder
from penstock.core.clock import Clock
from penstock.core.errors import PenstockError

log = logging.getLogger(__name__)

AT_ONCE = 2
RETRY_FIRST_S, RETRY_MAX_S = 1.0, 60.0
EXPIRED_AT_ONCE = 100
EXPIRATION = "expiration_time"

Key = tuple[str, str]
"""A queue by its object id, and the name of an export of it."""


@dataclass(slots=True)
class _State:
    """The state of an export."""

    config: ExportConfig
    done_s: int = 0  # the end of the last stretch that was looked at, whether it had rows or not
    failures: int = 0
    retry_at_s: float = 0.0
    error: PenstockError | None = None
    task: asyncio.Task[None] | None = None


class StaticExports:
    """Runs exports; `stop` it before the tablets it works on."""

    def __init__(self, namespace: Namespace, exporter: Exporter, clock: Clock, ages: Clock) -> None:
        self._namespace = namespace
        self._exporter = exporter
        self._clock = clock
        self._ages = ages
        self._states: dict[Key, _State] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._may_have_strays = False

    async def stop(self) -> None:
        """Stop; chunks copied without a table are deleted at the next start."""
        tasks = [state.task for state in self._states.values() if state.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def begin_due(self, queue: Node) -> None:
        """Start the exports of a queue that are due."""
        now_s = self._clock.wall()
        for config in exports_in(queue):
            key = (queue.id, config.name)
            state = self._states.get(key)
            if state is None or state.config != config:
                self._forget(key)
                state = self._states[key] = _State(config)
            if state.task is not None or self._clock.monotonic() < state.retry_at_s:
                continue
            fragment = config.schedule.last(now_s)
            if fragment.end_s > state.done_s:
                state.task = asyncio.create_task(self._run(queue, state, fragment), name=f"export-{queue.path}-{config.name}")

    def forget_others(self, queues: list[Node]) -> None:
        """Forget exports of other queues, and those that these queues no longer configure."""
        configured = {(queue.id, config.name) for queue in queues for config in exports_in(queue)}
        for key in self._states.keys() - configured:
            self._forget(key)

    def holders(self, queue: Node, number: int) -> list[Holder]:
        """The offsets from which exports of a queue need a partition."""
        holders: list[Holder] = []
        for config in exports_in(queue):
            name = f"export {config.name!r}"
            try:
                holders.append(Holder(name, self._exporter.progress(config, queue).next_row(number)))
            except PenstockError as error:
                holders.append(Holder(name, None, str(error)))
        return holders

    def shown(self, queue: Node, host: str) -> Status:
        """`@queue_status/exports`."""
        return {config.name: self._shown(queue, config, host) for config in exports_in(queue)}

    def alert(self, queue: Node) -> str | None:
        """The alert of an export, if there is one."""
        for config in exports_in(queue):
            state = self._states.get((queue.id, config.name))
            if state is not None and state.error is not None:
                return f"export {config.name!r} has failed {state.failures} times: {state.error}"
        return None

    async def sweep(self, *, serves: bool) -> None:
        """Delete expired tables and, if the namespace serves, chunks of tables that were never created."""
        if self._may_have_strays and serves:
            strays = self._exporter.strays()
            self._may_have_strays = False
            for table_id in strays:
                await self._exporter.drop(table_id)
        now_ms = int(self._ages.wall() * 1000)
        tables = [node for node in self._namespace.tree.nodes() if node.kind is Kind.STATIC and EXPIRATION in node.attributes]
        expired = [node for node in tables if int(node.attributes[EXPIRATION]) <= now_ms and not node.is_going]
        for node in expired[:EXPIRED_AT_ONCE]:
            log.info("table %s has outlived its time", node.path)
            await self._namespace.remove(node.path)

    async def _run(self, queue: Node, state: _State, fragment: Fragment) -> None:
        name = f"{queue.path}, export {state.config.name!r}"
        try:
            async with self._slots:
                if self._exporter.progress(state.config, queue).exported_s < fragment.end_s:
                    rows = await self._exporter.export(state.config, queue, fragment)
                    log.info("%s: %d rows up to %s", name, rows, shown_time(fragment.end_s * 1000))
        except asyncio.CancelledError:
            self._may_have_strays = True
            raise
        except PenstockError as error:
            self._may_have_strays = True
            pause_s = min(RETRY_FIRST_S * 2**state.failures, RETRY_MAX_S)
            state.failures += 1
            state.error, state.retry_at_s = error, self._clock.monotonic() + pause_s
            log.warning("%s will be tried again in %g s: %s", name, pause_s, error)
        else:
            state.failures, state.error, state.done_s = 0, None, fragment.end_s
        finally:
            state.task = None

    def _shown(self, queue: Node, config: ExportConfig, host: str) -> Status:
        state = self._states.get((queue.id, config.name), _State(config))
        now_s = self._clock.wall()
        shown: dict[str, Any] = {"is_running": state.task is not None, "failure_count": state.failures}
        try:
            shown["progress"] = self._exporter.progress(config, queue).shown()
        except PenstockError as error:
            shown |= StatusError(GENERIC_CODE, str(error), {}).shown(int(now_s * 1000), host)
        if state.error is not None:
            pause_s = max(state.retry_at_s - self._clock.monotonic(), 0)
            attributes = {"next_attempt_time": shown_time(int((now_s + pause_s) * 1000))}
            shown |= StatusError(GENERIC_CODE, str(state.error), attributes).shown(int(now_s * 1000), host)
        return shown

    def _forget(self, key: Key) -> None:
        state = self._states.pop(key, None)
        if state is not None and state.task is not None:
            state.task.cancel()
