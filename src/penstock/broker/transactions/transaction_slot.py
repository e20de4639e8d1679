"""A transactional id in the coordinator's memory: its state, its lock, and the writes that wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.broker.consumers import TopicPartition
from penstock.broker.transactions.transaction import Producer, Transaction
from penstock.core.errors import PenstockError

AddCallback = Callable[[PenstockError | None], None]
"""Called when a partition is part of a transaction, or with the error. It must not raise: others wait behind it."""


class TransactionSlot:
    """One transactional id."""

    __slots__ = ("adding", "ended", "is_adding", "lock", "transaction")

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.lock = asyncio.Lock()  # one request at a time
        self.ended = asyncio.Event()  # clear while the markers of a decided end are written
        self.ended.set()
        self.adding: dict[
            tuple[Producer, TopicPartition], list[AddCallback]
        ] = {}  # writes that wait for their partition to be added
        self.is_adding = False  # whether a task adds them

    async def wait_ended(self, timeout_s: float) -> bool:
        """Wait until the decided end is finished. Returns False on timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.ended.wait()
        except TimeoutError:
            return False
        return True

    def notify(self, producer: Producer, queues: frozenset[TopicPartition], error: PenstockError | None) -> None:
        """Call back the writes that wait for these partitions, in order."""
        for queue in queues:
            for callback in self.adding.pop((producer, queue), ()):
                callback(error)

    def fail_all(self, error: PenstockError) -> None:
        """Call back every write that still waits, with an error."""
        while self.adding:
            for callback in self.adding.pop(next(iter(self.adding))):
                callback(error)
