"""One of the broker's own topics as a log: records are appended in batches, each all or nothing, and read back by offset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.errors import UnknownTopicError
from penstock.broker.internal_topics import internal_config
from penstock.core.record_format import framed, packed_record
from penstock.kernels.record_scan import KEY_AT, KEY_SIZE, OFFSET_DELTA, VALUE_AT, VALUE_SIZE
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
        for batch in split_batches(joined(read)):
            visit_records(batch, apply)
        return read.next_offset


def _octets(records: memoryview, at: int, size: int) -> bytes | None:
    return None if size < 0 else bytes(records[at : at + size])


def visit_records(batch: memoryview, apply: Apply) -> None:
    """Apply all records of a batch."""
    scanned = scan_batch(batch)
    if scanned is None:
        return
    records, base = scanned.records, scanned.header.base_offset
    for row in scanned.table.tolist():
        key = _octets(records, row[KEY_AT], row[KEY_SIZE])
        apply(base + row[OFFSET_DELTA], key, _octets(records, row[VALUE_AT], row[VALUE_SIZE]))
