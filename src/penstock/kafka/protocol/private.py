"""Apis of Penstock's own: several transactions committed as one, with a record of the application that does so."""

from __future__ import annotations

from penstock.kafka.protocol.fields import Message, array, boolean, int16, int32, int64, octets, string


class CommittedTransaction(Message):
    """One item of `CommitTogetherRequest.transactions`, and of `CommitTogetherResponse.transactions`."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()


class CommitTogetherRequest(Message):
    """Commits all of the transactions and sets the record, or does nothing of it."""

    record_key: str = string()
    record_value: bytes = octets()
    expected_value: bytes | None = octets(nullable="0+", default=None)
    transactions: list[CommittedTransaction] = array(CommittedTransaction)


class CommitTogetherResponse(Message):
    """Whether it was done, now or by an earlier request; who the producers are from then on, if it was now."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    already_committed: bool = boolean()
    transactions: list[CommittedTransaction] = array(CommittedTransaction)


class ApplicationRecordRequest(Message):
    """Asks for the record of an application."""

    record_key: str = string()


class ApplicationRecordResponse(Message):
    """The record; null if there is none."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    record_value: bytes | None = octets(nullable="0+", default=None)
