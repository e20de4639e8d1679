"""Rows into partitions: as one batch each, with the weights that the seed counts."""

from __future__ import annotations

import asyncio

from penstock.broker import Broker, Producer, Route, TopicPartition
from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.core.record_format import Writer
from penstock.gateway.yt.encoded_rows import EncodedRows
from penstock.gateway.yt.row_batch import make_row_batch
from penstock.queue import SourceWrite, WriteResult, check_batch


class RowWriter:
    """Writes rows."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock

    def is_one_batch(self, parts: list[EncodedRows]) -> bool:
        """However many parts there are."""
        return True

    async def write(self, queue: TopicPartition, parts: list[EncodedRows], producer: Producer | None) -> None:
        """Store rows in a partition, by themselves or as part of a transaction."""
        await self._write(queue, parts, None if producer is None else Writer(producer.id, producer.epoch, 0), None)

    async def write_of_source(self, queue: TopicPartition, rows: list[EncodedRows], source: SourceWrite) -> None:
        """Store rows that carry where they are from."""
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
                self._broker.begin_produce(Route.to(topic, partition), raw, stored)
            else:
                partition.enqueue(check_batch(raw, partition.config.batch_bytes_max), source, stored)
        except PenstockError:
            weights.add(partition, -weight)
            raise
        # If it fails from here on, others may be queued behind it already: their weights count it, and go on rising.
        return await stored
