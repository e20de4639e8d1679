"""One of the broker's own topics as a log: records are appended in batches, each all or nothing, and read back by offset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.broker.broker import Broker
from penstock.broker.errors import UnknownTopicError
from penstock.broker.internal_topics import internal_config
from penstock.core.record_format import framed, packed_record
from penstock.kernels.record_scan import FIELDS, count_run, scan_run
from penstock.queue import Partition, joined, scan_batch, split_batches

READ_BYTES: Final = 256 << 10  # that are applied in one turn of the event loop

Apply = Callable[[int, bytes | None, bytes | None], None]


class InternalLog:
    """Appends records to an internal topic and reads them."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._broker = broker
        self.topic = topic

    def partition(self) -> Partition | None:
        """The partition of the topic; None while nothing was ever appended. Raises what Broker.partition does."""
        try:
            topic = self._broker.catalog.topic(self.topic)
        except UnknownTopicError:
            return None
        return self._broker.partition(topic, 0)

    async def append(self, entries: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Store keys with their values, all of them or none; they are durable when this returns. After an error they may be
        stored or not."""
        topic = await self._broker.internal_topic(self.topic)
        if topic.config.own != internal_config(self.topic).own:
            # Made by a client for a purpose of its own, maybe with a retention that would delete records.
            topic = await self._broker.configure_topic(self.topic, internal_config(self.topic))
        now_ms = int(self._broker.clock.wall() * 1000)
        records = [packed_record(number, value, key=key) for number, (key, value) in enumerate(entries)]
        await self._broker.produce(topic, 0, framed(b"".join(records), len(records), (now_ms, now_ms)))

    async def read_on(self, partition: Partition, offset: int, apply: Apply, size: int = READ_BYTES) -> int:
        """Apply the batches from the one that holds an offset on, some at a time. Returns the offset after them."""
        read = await partition.read(offset, size)
        visit_records(joined(read), apply)
        return read.next_offset


def visit_records(run: bytes, apply: Apply) -> None:
    """Apply all records of the batches that stand one after another in a run."""
    count = count_run(run)
    if count >= 0:
        table = np.empty((count, FIELDS), np.int64)
        scan_run(run, table)
        _visit(run, table, 0, apply)
        return
    for batch in split_batches(run):
        scanned = scan_batch(batch)
        if scanned is not None:
            _visit(bytes(scanned.records), scanned.table, scanned.header.base_offset, apply)


def _visit(records: bytes, table: NDArray[np.int64], base_offset: int, apply: Apply) -> None:
    for _, _, _, delta, key_at, key_size, value_at, value_size, _ in table.tolist():
        key = None if key_size < 0 else records[key_at : key_at + key_size]
        apply(base_offset + delta, key, None if value_size < 0 else records[value_at : value_at + value_size])
