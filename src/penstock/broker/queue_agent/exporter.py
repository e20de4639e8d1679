"""Runs one export: copies rows of a queue into chunks, then creates the table and stores the progress atomically.

Chunks are written while nothing refers to them. The step that counts puts the table into the namespace and the new progress on
its directory, in one request to one tablet: before it there is no table and the rows will be exported again, after it not.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from random import Random
from typing import TypeVar

from penstock.blob import Buffer
from penstock.broker.namespace import Kind, Namespace, Node
from penstock.broker.namespace.node import new_id
from penstock.broker.queue_agent.export_config import ExportConfig, Fragment, InvalidExportError, exports_of
from penstock.broker.queue_agent.export_progress import (
    DESTINATION,
    PROGRESS,
    ExportProgress,
    TabletProgress,
    progress_in,
)
from penstock.broker.table_store import Chunk, TableStore
from penstock.broker.topic import Topic
from penstock.broker.weights import weights_of
from penstock.core.clock import Clock
from penstock.core.errors import UnavailableError
from penstock.core.record_format import header_at
from penstock.queue import Aborted, Partition, ReadResult, committed_batches, joined, scan_batch

EXPORTS = "static_export_config"
CHUNK_BYTES = 4 << 20
TRIES = 10
PAUSE_S = 0.2

PartitionOf = Callable[[Topic, int], Partition]
T = TypeVar("T")


@dataclass(slots=True)
class ExportTable:
    """A table that an export fills."""

    table_id: str
    tablets: dict[int, TabletProgress] = field(default_factory=dict)
    rows: int = 0
    size: int = 0
    weight: int = 0
    chunks: int = 0


class Exporter:
    """Creates the tables of exports."""

    def __init__(
        self, namespace: Namespace, store: TableStore, partition_of: PartitionOf, *, clock: Clock, random: Random
    ) -> None:
        self._namespace = namespace
        self._store = store
        self._partition_of = partition_of
        self._clock = clock
        self._random = random
        self._filling: set[str] = set()  # tables that are not there yet

    def directory(self, config: ExportConfig, queue: Node) -> Node:
        """The directory of an export. Raises InvalidExportError if it does not exist or belongs to another queue."""
        node = self._namespace.find(config.directory)
        if node is None or node.kind is not Kind.FOLDER:
            raise InvalidExportError(f"there is no directory {config.directory} to export to; make it with `yt create map_node`")
        owner = originating_queue(node)
        if owner not in (None, queue.id):
            raise InvalidExportError(
                f"directory {config.directory} is for exports of another queue, {owner}; name this one, {queue.id}, in its "
                f"@{DESTINATION}, or export to another directory"
            )
        return node

    def progress(self, config: ExportConfig, queue: Node) -> ExportProgress:
        """The progress of an export. Raises InvalidExportError as above."""
        return progress_in(self.directory(config, queue).attributes, queue.id)

    async def export(self, config: ExportConfig, queue: Node, fragment: Fragment) -> int:
        """Create the table of a period, unless it would be empty. Returns its number of rows."""
        topic = self._namespace.topic(queue)
        before = self.progress(config, queue)
        path = f"{config.directory}/{config.table_name(fragment)}"
        if self._namespace.find(path) is not None:
            raise InvalidExportError(
                f"there is a node {path} already; output_table_name_pattern must name each table another way"
            )
        table = ExportTable(new_id(Kind.STATIC, self._random))
        self._filling.add(table.table_id)
        try:
            for number in range(topic.partitions):
                await self._copy(topic, number, before, fragment.end_s * 1000, table)
            if table.tablets:
                await self._finish(config, queue, before, fragment, table)
        finally:
            self._filling.discard(table.table_id)
        return table.rows

    def strays(self) -> set[str]:
        """Returns tables that have chunks but no node. Call it while the namespace serves: only then is it known whether
        a step that failed was taken all the same."""
        return self._store.tables() - self._filling - {node.id for node in self._namespace.tree.nodes()}

    async def drop(self, table_id: str) -> None:
        """Delete the chunks of a table."""
        await self._store.delete(table_id)

    async def _copy(self, topic: Topic, number: int, before: ExportProgress, until_ms: int, table: ExportTable) -> None:
        """Copy the rows of one partition that were written before a time."""
        known = before.tablets.get(number, TabletProgress(0))
        at, latest_ms, lost = known
        is_over = False
        while not is_over:
            read, aborted, marked_from = await _again(partial(self._read, topic, number, at))
            if read.next_offset <= at:
                break
            first = max(at, read.start_offset)
            lost += first - at
            taken, reached = self._taken(joined(read), aborted, first, until_ms)
            is_over = reached is not None
            at = read.next_offset if reached is None else max(reached, first)
            await asyncio.sleep(0)  # a long stretch of what is not exported is read from memory without suspending
            if taken:
                latest_ms = max(latest_ms, *(header_at(batch).max_ms for batch in taken))
                await self._append(table, number, (first, at), taken)
                table.weight += sum(_weight_of(batch, marked_from) for batch in taken)
        if at > known.next_row:
            table.tablets[number] = TabletProgress(at, latest_ms, lost)

    async def _read(self, topic: Topic, number: int, at: int) -> tuple[ReadResult, list[Aborted], int]:
        partition = self._partition_of(topic, number)
        read = await partition.read(at, CHUNK_BYTES, until=partition.stable_offset)
        return read, partition.aborted_between(at, read.next_offset), partition.origins.marked_from

    def _taken(self, data: bytes, aborted: list[Aborted], first: int, until_ms: int) -> tuple[list[memoryview], int | None]:
        """The committed batches from an offset on, up to the first that is too young, and where that one begins. A time that has
        not come yet was made up by a producer and says nothing."""
        now_ms = int(self._clock.wall() * 1000)
        taken: list[memoryview] = []
        for batch in committed_batches(data, aborted):
            header = header_at(batch)
            if until_ms <= header.max_ms <= now_ms:
                return taken, header.base_offset
            if header.next_offset > first:
                taken.append(batch)
        return taken, None

    async def _append(self, table: ExportTable, number: int, span: tuple[int, int], batches: list[memoryview]) -> None:
        rows = sum(_rows_from(batch, span[0]) for batch in batches)
        size = sum(map(len, batches))
        chunk = Chunk(number, *span, rows, size)
        buffers: list[Buffer] = list(batches)
        await _again(partial(self._store.append, table.table_id, chunk, buffers))
        table.rows += rows
        table.size += size
        table.chunks += 1

    async def _finish(
        self, config: ExportConfig, queue: Node, before: ExportProgress, fragment: Fragment, table: ExportTable
    ) -> None:
        """Create the table and store the progress, atomically."""
        now_ms = int(self._clock.wall() * 1000)
        after = ExportProgress(queue.id, fragment.end_s, now_ms, {**before.tablets, **table.tablets})
        tables = [self._table_node(config, queue, fragment, table, now_ms)] if table.rows else []

        def changed() -> list[Node]:
            now = self._namespace.node(queue.path)
            directory = self.directory(config, queue)
            if now.id != queue.id or config not in exports_in(now) or progress_in(directory.attributes, queue.id) != before:
                raise InvalidExportError(f"export {config.name!r} was changed while it ran")
            owner = b'{"originating_queue_id": "%b"}' % queue.id.encode()
            attributes = {DESTINATION: owner, **directory.attributes, PROGRESS: after.pack()}
            return [replace(directory, attributes=attributes), *tables]

        await self._namespace.put_together(changed)

    def _table_node(self, config: ExportConfig, queue: Node, fragment: Fragment, table: ExportTable, now_ms: int) -> Node:
        numbers = {
            "row_count": table.rows,
            "chunk_count": table.chunks,
            "data_weight": table.weight,
            "uncompressed_data_size": table.size,
        }
        attributes = {name: str(number).encode() for name, number in numbers.items()}
        if "schema" in queue.attributes:
            attributes["schema"] = queue.attributes["schema"]
        if config.ttl_ms is not None:
            attributes["expiration_time"] = str(now_ms + config.ttl_ms).encode()
        path = f"{config.directory}/{config.table_name(fragment)}"
        topic = self._namespace.topic(queue).name
        return Node(path, table.table_id, Kind.STATIC, now_ms, now_ms, attributes, topic=topic)


def exports_in(queue: Node) -> list[ExportConfig]:
    """The exports in a queue's attributes, which were validated when they were set."""
    raw = queue.attributes.get(EXPORTS)
    return [] if raw is None else _parsed(raw)


@lru_cache(maxsize=1000)
def _parsed(raw: bytes) -> list[ExportConfig]:
    return exports_of(json.loads(raw))


def originating_queue(directory: Node) -> str | None:
    """The queue of a directory; None if it is not set."""
    raw = directory.attributes.get(DESTINATION)
    queue_id = None if raw is None else json.loads(raw).get("originating_queue_id")
    return None if queue_id is None else str(queue_id)


def _weight_of(batch: memoryview, marked_from: int) -> int:
    weights = weights_of(batch, marked_from)
    return len(batch) if weights is None else weights.after - weights.before


def _rows_from(batch: memoryview, offset: int) -> int:
    header = header_at(batch)
    if header.base_offset >= offset:
        return header.message_count
    scanned = scan_batch(batch)  # the rest of a batch whose first rows were trimmed
    return 0 if scanned is None else header.message_count - scanned.first_row(offset)


async def _again(step: Callable[[], Awaitable[T]]) -> T:
    """Retry an operation while a tablet starts, so that copied rows need not be copied again."""
    for _ in range(TRIES - 1):
        try:
            return await step()
        except UnavailableError:
            await asyncio.sleep(PAUSE_S)
    return await step()
