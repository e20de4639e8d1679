"""The ends of transactions in a partition since it was loaded.

A write within a transaction may take a while on its way here: it is admitted by the coordinator, maybe on another node, and its
records are checked. If the transaction ends meanwhile, and its producer keeps its epoch, nothing in the write itself shows that
it is late; stored, it would begin a transaction that is never ended. So it takes a guard before it sets out.

A marker may be late as well: a coordinator that was superseded, and does not know it yet, repeats what the next one has done. By
then the producer may be in its next transaction, which the marker would end. So a marker is refused if a newer coordinator has
ended a transaction of its producer.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from weakref import WeakValueDictionary

from penstock.queue.errors import StaleEpochError

DECIDED_MAX = 10_000  # producers whose last coordinator epoch is kept


class TransactionGuard:
    """Whether a producer's transaction has ended since the guard was taken."""

    __slots__ = ("__weakref__", "is_ended")

    def __init__(self) -> None:
        self.is_ended = False


class TransactionEnds:
    """Guards of writes in flight, markers in flight, and the coordinator epochs of markers that are stored."""

    __slots__ = ("_decided", "_guards", "_in_flight")

    def __init__(self) -> None:
        self._guards: WeakValueDictionary[int, TransactionGuard] = WeakValueDictionary()
        self._in_flight: Counter[int] = Counter()
        self._decided: OrderedDict[int, int] = OrderedDict()

    def guard(self, producer_id: int) -> TransactionGuard:
        """The guard for writes of a producer until its next marker."""
        guard = self._guards.get(producer_id)
        if guard is None:
            guard = self._guards[producer_id] = TransactionGuard()
        return guard

    def is_ending(self, producer_id: int) -> bool:
        """Whether a marker of the producer waits to be stored."""
        return producer_id in self._in_flight

    def decided_by(self, producer_id: int) -> int | None:
        """The epoch of the coordinator that ended the producer's last transaction; None if that is not known."""
        return self._decided.get(producer_id)

    def begin(self, producer_id: int, coordinator_epoch: int) -> None:
        """A marker comes: writes that were on their way are late. StaleEpochError if a newer coordinator has ended the producer's
        last transaction."""
        decided_by = self._decided.get(producer_id, coordinator_epoch)
        if coordinator_epoch < decided_by:
            raise StaleEpochError(f"the marker is of coordinator epoch {coordinator_epoch}, but epoch {decided_by} has begun")
        self._in_flight[producer_id] += 1
        guard = self._guards.pop(producer_id, None)
        if guard is not None:
            guard.is_ended = True

    def finish(self, producer_id: int, decided_by: int | None) -> None:
        """The marker is stored, with the epoch of its coordinator; None if it may not be."""
        self._in_flight[producer_id] -= 1
        if not self._in_flight[producer_id]:
            del self._in_flight[producer_id]
        if decided_by is not None:
            self._decided[producer_id] = decided_by
            self._decided.move_to_end(producer_id)
            if len(self._decided) > DECIDED_MAX:
                self._decided.popitem(last=False)
