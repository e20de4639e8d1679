"""The end of a transaction that is decided: a marker in each of its partitions, and its staged offsets committed or dropped.

Each step is idempotent, so after a crash all of them are simply done again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from uuid import UUID

from penstock.broker.consumers import TopicPartition
from penstock.broker.errors import UnknownTopicError
from penstock.broker.topic import Topic
from penstock.broker.transactional_offsets import TransactionalOffsets
from penstock.broker.transactions.transaction import Transaction
from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.queue import SourceWrite, StaleEpochError, make_marker, marker_source

log = logging.getLogger(__name__)

NAMED_UUID = 5
RETRY_FIRST_S = 0.02
RETRY_MAX_S = 2.0

Mark = Callable[[TopicPartition, bytes, SourceWrite], Awaitable[None]]
"""Writes a marker to a partition. UnknownTopicError if its topic is gone; other errors pass."""


class MarkerWriter:
    """Writes the markers of decided transactions, and commits or drops their staged offsets."""

    def __init__(self, mark: Mark, topic_by_id: Callable[[UUID], Topic], offsets: TransactionalOffsets, clock: Clock) -> None:
        self._write_marker = mark
        self._topic_by_id = topic_by_id
        self._offsets = offsets
        self._clock = clock

    async def finish(self, transaction: Transaction, coordinator_epoch: int) -> None:
        """Write all markers and settle the offsets. Retries until all of it is done."""
        assert transaction.is_prepared, f"the end of {transaction.transactional_id!r} is not decided: {transaction.state.value}"
        work = [self._mark(transaction, queue, coordinator_epoch) for queue in sorted(transaction.queues)]
        if transaction.groups:
            work.append(self._finish_offsets(transaction))
        await asyncio.gather(*work)

    async def _mark(self, transaction: Transaction, queue: TopicPartition, coordinator_epoch: int) -> None:
        marker = make_marker(
            commit=transaction.is_commit,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.epoch,
            coordinator_epoch=coordinator_epoch,
            now_ms=int(self._clock.wall() * 1000),
        )
        source = marker_source(source_of(transaction.producer_id), transaction.epoch)
        pause_s = RETRY_FIRST_S
        while True:
            try:
                await self._write_marker(queue, marker, source)
                return
            except UnknownTopicError:
                return  # deleted with all that the transaction wrote there
            except StaleEpochError as error:
                log.error("the transaction of %r cannot be marked: %s", transaction.transactional_id, error)
                return
            except PenstockError as error:
                log.info("the transaction of %r is not marked yet: %s", transaction.transactional_id, error)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, RETRY_MAX_S)

    async def _finish_offsets(self, transaction: Transaction) -> None:
        pause_s = RETRY_FIRST_S
        while True:
            try:
                await self._offsets.finish(transaction.producer_id, commit=transaction.is_commit, is_known=self._is_known)
                return
            except PenstockError as error:
                log.info("the positions of %r are not settled yet: %s", transaction.transactional_id, error)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, RETRY_MAX_S)

    def _is_known(self, topic_id: UUID) -> bool:
        if topic_id.version == NAMED_UUID:
            return True  # it stands for a queue of another cluster
        try:
            self._topic_by_id(topic_id)
        except UnknownTopicError:
            return False
        return True


def source_of(producer_id: int) -> bytes:
    """The source id of a Kafka producer."""
    return b"k" + producer_id.to_bytes(8, "big")
