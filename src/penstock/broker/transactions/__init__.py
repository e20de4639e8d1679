"""Transactions: several partitions and consumers' positions changed together or not at all (seed 003)."""

from penstock.broker.transactions.coordinator import Committed, Ended, TransactionCoordinator, TransactionOptions
from penstock.broker.transactions.ending import Ending, source_of
from penstock.broker.transactions.errors import (
    ConcurrentTransactionsError,
    InvalidTransactionStateError,
    InvalidTransactionTimeoutError,
    NotInTransactionError,
    ProducerFencedError,
    RecordConflictError,
    UnknownProducerError,
)
from penstock.broker.transactions.store import TransactionStore
from penstock.broker.transactions.transaction import V1, V2, Producer, Transaction
from penstock.broker.transactions.transaction import State as TransactionState

__all__ = [
    "V1",
    "V2",
    "Committed",
    "ConcurrentTransactionsError",
    "Ended",
    "Ending",
    "InvalidTransactionStateError",
    "InvalidTransactionTimeoutError",
    "NotInTransactionError",
    "Producer",
    "ProducerFencedError",
    "RecordConflictError",
    "Transaction",
    "TransactionCoordinator",
    "TransactionOptions",
    "TransactionState",
    "TransactionStore",
    "UnknownProducerError",
    "source_of",
]
