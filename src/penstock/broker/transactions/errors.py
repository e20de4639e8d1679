"""Errors of transactions."""

from __future__ import annotations

from penstock.core.errors import FencedError, InvalidRequestError, UnavailableError


class ProducerFencedError(FencedError):
    """A newer producer has taken over the transactional id, or the transaction timed out."""

    code = "producer_fenced"


class UnknownProducerError(InvalidRequestError):
    """The transactional id is not known, or belongs to another producer id."""

    code = "unknown_producer"


class ConcurrentTransactionsError(UnavailableError):
    """The previous transaction is still being ended; retry."""

    code = "concurrent_transactions"


class InvalidTransactionStateError(InvalidRequestError):
    """The operation is not allowed in the current state of the transaction."""

    code = "invalid_transaction_state"


class NotInTransactionError(InvalidTransactionStateError):
    """The partition or group is not part of an open transaction of the producer, which must abort and start over."""

    code = "not_in_transaction"


class InvalidTransactionTimeoutError(InvalidRequestError):
    """The transaction timeout is zero, negative, or above the broker's maximum."""

    code = "invalid_transaction_timeout"


class RecordConflictError(InvalidRequestError):
    """The application record does not have the expected value: another writer has committed in between."""

    code = "record_conflict"
