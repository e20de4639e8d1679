"""Transactions over several partitions and committed offsets (seed 003)."""

from penstock.broker.transactions.coordinator import CommitOutcome, TransactionCommit, TransactionCoordinator, TransactionOptions
from penstock.broker.transactions.errors import (
    ConcurrentTransactionsError,
    InvalidTransactionStateError,
    InvalidTransactionTimeoutError,
    NotInTransactionError,
    ProducerFencedError,
    RecordConflictError,
    UnknownProducerError,
)
from penstock.broker.transactions.marker_writer import MarkerWriter, source_of
from penstock.broker.transactions.store import TransactionStore
from penstock.broker.transactions.transaction import V1, V2, Producer, Transaction
from penstock.broker.transactions.transaction import State as TransactionState

__all__ = [
    "V1",
    "V2",
    "CommitOutcome",
    "ConcurrentTransactionsError",
    "InvalidTransactionStateError",
    "InvalidTransactionTimeoutError",
    "MarkerWriter",
    "NotInTransactionError",
    "Producer",
    "ProducerFencedError",
    "RecordConflictError",
    "Transaction",
    "TransactionCommit",
    "TransactionCoordinator",
    "TransactionOptions",
    "TransactionState",
    "TransactionStore",
    "UnknownProducerError",
    "source_of",
]
