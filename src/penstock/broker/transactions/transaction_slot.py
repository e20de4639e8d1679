"""A transactional id in the coordinator's memory: its state, whose turn it is, and who waits for what."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.broker.consumers import TopicPartition
from penstock.broker.transactions.transaction import Producer, Transaction
from penstock.core.errors import PenstockError

AddCallback = Callable[[PenstockError | None], None]
"""Told that a partition is part of a transaction, or why it is not. It must not raise: others wait behind it."""


class TransactionSlot:
    """One transactional id."""

    __slots__ = ("adding", "ended", "is_adding", "lock", "transaction")

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.lock = asyncio.Lock()  # one request at a time
        self.ended = asyncio.Event()  # not set while a decided end is carried out
        self.ended.set()
        self.adding: dict[
            tuple[Producer, TopicPartition], list[AddCallback]
        ] = {}  # writes that wait for their partition to be added
        self.is_adding = False  # whether somebody is at it

    async def wait_ended(self, timeout_s: float) -> bool:
        """Wait until the end that was decided is carried out; whether it is."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.ended.wait()
        except TimeoutError:
            return False
        return True

    def answer(self, producer: Producer, queues: frozenset[TopicPartition], error: PenstockError | None) -> None:
        """Tell the writes that wait for these partitions, in their order."""
        for queue in queues:
            for callback in self.adding.pop((producer, queue), ()):
                callback(error)

    def answer_all(self, error: PenstockError) -> None:
        """Tell every write that still waits."""
        while self.adding:
            for callback in self.adding.pop(next(iter(self.adding))):
                callback(error)
