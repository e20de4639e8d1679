"""Writes rows to partitions, one batch for each partition, with their cumulative weights."""

from __future__ import annotations

import asyncio

from penstock.broker import Broker, Route, TopicPartition
from penstock.broker.transactions import Producer
from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.core.record_format import Writer
from penstock.gateway.yt.encoded_rows import EncodedRows
from penstock.gateway.yt.row_batch import make_row_batch
from penstock.queue import SourceWrite, WriteResult, check_batch


class RowWriter:
    """Encodes rows as batches and produces them."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock

    def is_one_batch(self, parts: list[EncodedRows]) -> bool:
        """Always: all parts go into one batch."""
        return True

    async def write(self, queue: TopicPartition, parts: list[EncodedRows], producer: Producer | None) -> None:
        """Store rows in a partition, in a transaction if there is a producer."""
        await self._write(queue, parts, None if producer is None else Writer(producer.id, producer.epoch, 0), None)

    async def write_of_source(self, queue: TopicPartition, rows: list[EncodedRows], source: SourceWrite) -> None:
        """Store rows with the source that deduplicates them."""
        await self._write(queue, rows, None, source)

    async def _write(
        self, queue: TopicPartition, rows: list[EncodedRows], writer: Writer | None, source: SourceWrite | None
    ) -> WriteResult:
        topic = self._broker.catalog.topic_by_id(queue.topic_id)
        partition = self._broker.partition(topic, queue.partition)
        weights = self._broker.weights
        await weights.load(partition)
        weight = sum(part.weight for part in rows)
        stored: asyncio.Future[WriteResult] = asyncio.get_running_loop().create_future()
        raw = make_row_batch(rows, weights.add(partition, weight), int(self._clock.wall() * 1000), writer)
        try:
            if source is None:
                self._broker.begin_produce(Route(topic, partition), raw, stored)
            else:
                partition.enqueue(check_batch(raw, partition.config.batch_bytes_max), source, stored)
        except PenstockError:
            weights.add(partition, -weight)
            raise
        # If it fails after this, batches queued behind it have counted its weight already; weights keep rising, with a gap.
        return await stored
