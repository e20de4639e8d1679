"""The driver's side of exactly once: a record in the broker that is committed atomically with the transactions of all tasks.

The record says what was committed last. It is set by compare and set, so of two drivers one wins, and a commit that is repeated
finds that it was done.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from penstock.core.errors import PenstockError
from penstock.kafka.client import BlockingClient, OpenTransaction

ABORT_TIMEOUT_MS = 60_000

_log = logging.getLogger(__name__)


class CommitRecord:
    """The record under `key`; transactional ids of its tasks begin with `prefix`."""

    def __init__(self, client: BlockingClient, key: str, prefix: str) -> None:
        self._client = client
        self.key = key
        self.prefix = prefix
        self.value: bytes | None = None

    def read(self) -> bytes | None:
        """Read the last committed value; None if there is none."""
        self.value = self._client.record(self.key)
        return self.value

    def commit(self, transactions: Iterable[OpenTransaction], value: bytes) -> None:
        """Make the rows of transactions visible and set the record, or neither. RequestRefusedError with
        INVALID_UPDATE_VERSION if the record is not what was read."""
        self._client.commit_together(transactions, (self.key, value), self.value)
        self.value = value

    def abort(self, transactions: Iterable[OpenTransaction]) -> None:
        """Abort what is still open of these. One that cannot be aborted times out: readers of committed rows wait for it until
        then, and nothing is lost or doubled."""
        for transaction in transactions:
            try:
                self._client.abort(transaction)
            except PenstockError as error:
                _log.warning("%s stays open until it times out: %s", transaction.transactional_id, error)

    def abort_left_behind(self) -> None:
        """Abort open transactions of failed attempts and lost drivers, as far as possible."""
        try:
            names = self._client.open_transactions(self.prefix)
        except PenstockError as error:
            _log.warning("transactions of lost tasks stay open until they time out: %s", error)
            return
        for name in names:
            try:
                self._client.initialise(name, ABORT_TIMEOUT_MS)
            except PenstockError as error:
                _log.warning("%s stays open until it times out: %s", name, error)
