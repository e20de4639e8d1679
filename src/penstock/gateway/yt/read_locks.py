"""Master transactions for readers of static tables: they hold snapshot locks and change nothing.

A static table never changes, so a lock does nothing but give the client an id to read by.
"""

from __future__ import annotations

from random import Random

from penstock.broker.namespace import object_id
from penstock.core.clock import Clock
from penstock.gateway.yt.call import Call, Command, Reply
from penstock.gateway.yt.errors import GENERIC, NO_SUCH_TRANSACTION, YtError
from penstock.gateway.yt.visible_nodes import node_at

MASTER_TYPE, LOCK_TYPE = 1, 200


class MasterTransactions:
    """The open master transactions."""

    def __init__(self, *, open_max: int, clock: Clock, random: Random) -> None:
        self._open_max = open_max
        self._clock = clock
        self._random = random
        self._open: dict[str, tuple[float, float]] = {}  # the timeout of each, and when it expires

    def start(self, timeout_s: float) -> str:
        """Start a transaction. Returns its id."""
        now_s = self._clock.monotonic()
        for expired in [name for name, (_, expires_s) in self._open.items() if expires_s < now_s]:
            del self._open[expired]
        if len(self._open) >= self._open_max:
            raise YtError(
                GENERIC, f"{self._open_max} transactions are open; commit or abort some first, or raise yt_transactions_max"
            )
        transaction_id = object_id(MASTER_TYPE, self._random.getrandbits(128))
        self._open[transaction_id] = (timeout_s, now_s + timeout_s)
        return transaction_id

    def ping(self, transaction_id: str) -> None:
        """Extend the lifetime of a transaction. YtError if there is none."""
        timeout_s, expires_s = self._open.get(transaction_id, (0.0, 0.0))
        now_s = self._clock.monotonic()
        if expires_s <= now_s:
            raise YtError(
                NO_SUCH_TRANSACTION,
                f"No such transaction {transaction_id}: it has ended, was not pinged in time, or the node was restarted",
                {"transaction_id": transaction_id},
            )
        self._open[transaction_id] = (timeout_s, now_s + timeout_s)

    async def commit(self, transaction_id: str) -> None:
        """End a transaction; there is nothing to commit."""
        self.abort(transaction_id)

    def abort(self, transaction_id: str) -> None:
        """End a transaction."""
        self.ping(transaction_id)
        del self._open[transaction_id]


def is_master(transaction_id: str) -> bool:
    """Whether an id is that of a master transaction, by the type in it."""
    parts = transaction_id.split("-")
    try:
        return len(parts) == 4 and int(parts[2], 16) & 0xFFFF == MASTER_TYPE
    except ValueError:
        return False


async def lock(call: Call) -> Reply:
    """Take a snapshot lock."""
    if call.text("mode", "exclusive") != "snapshot":
        raise YtError(GENERIC, "only snapshot locks are supported, for reading")
    transaction_id = call.transaction_id
    if transaction_id is None:
        raise YtError(GENERIC, "a lock needs a transaction; name one with --tx")
    call.cluster.master_transactions.ping(transaction_id)
    node = node_at(call, call.path())
    lock_id = object_id(LOCK_TYPE, call.cluster.random.getrandbits(128))
    return Reply({"lock_id": lock_id, "node_id": node.id, "revision": node.changed_ms})


COMMANDS = {"lock": Command(lock, is_volatile=True, takes_transaction=True, is_in_memory=True)}
