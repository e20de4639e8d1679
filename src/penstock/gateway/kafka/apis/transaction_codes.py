"""Errors of transactions as Kafka's codes. Which code tells a producer the same thing depends on the api and its version."""

from __future__ import annotations

from penstock.broker.transactions import ConcurrentTransactionsError, NotInTransactionError, ProducerFencedError
from penstock.core.errors import ClosedError, FencedError, OutOfSpaceError, PenstockError, UnavailableError
from penstock.gateway.kafka.error_codes import code_of
from penstock.kafka.protocol import errors

PRODUCE_ABORTABLE_FROM = 11
PRODUCE_CONCURRENT_FROM = 12
COMMIT_ABORTABLE_FROM = 4


def coordinator_code(error: PenstockError, *, tells_fenced: bool = True, tells_abortable: bool = False) -> int:
    """The code with which a coordinator refuses. `tells_fenced`: the client knows PRODUCER_FENCED; `tells_abortable`: it knows
    TRANSACTION_ABORTABLE."""
    if isinstance(error, ProducerFencedError):
        return errors.PRODUCER_FENCED if tells_fenced else errors.INVALID_PRODUCER_EPOCH
    if isinstance(error, NotInTransactionError) and not tells_abortable:
        return errors.INVALID_TXN_STATE
    if isinstance(error, ConcurrentTransactionsError):
        return errors.CONCURRENT_TRANSACTIONS
    if isinstance(error, FencedError | ClosedError):
        return errors.NOT_COORDINATOR
    if isinstance(error, UnavailableError | OutOfSpaceError):
        return errors.COORDINATOR_NOT_AVAILABLE
    return code_of(error)


def produce_code(error: PenstockError, version: int) -> int:
    """The code with which a batch is refused."""
    if isinstance(error, ProducerFencedError):
        return errors.INVALID_PRODUCER_EPOCH
    if isinstance(error, NotInTransactionError):
        return errors.TRANSACTION_ABORTABLE if version >= PRODUCE_ABORTABLE_FROM else errors.INVALID_TXN_STATE
    if isinstance(error, ConcurrentTransactionsError):
        # Older producers know this code only from a coordinator; on that other one they send the batch again.
        return errors.CONCURRENT_TRANSACTIONS if version >= PRODUCE_CONCURRENT_FROM else errors.NOT_ENOUGH_REPLICAS
    if type(error) is UnavailableError:
        # It may be stored all the same. Of KAFKA_STORAGE_ERROR librdkafka believes that it is not.
        return errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    return code_of(error)
