"""What producers need beyond a plain client: topics to write to, producer ids, and transactions, several committed as one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeVar

from penstock.kafka.client.client import TRANSACTION, KafkaClient, TopicInfo
from penstock.kafka.client.errors import RequestRefusedError
from penstock.kafka.protocol import Message, errors, keys, private_keys
from penstock.kafka.protocol.private import (
    ApplicationRecordRequest,
    ApplicationRecordResponse,
    CommittedTransaction,
    CommitTogetherRequest,
    CommitTogetherResponse,
)
from penstock.kafka.protocol.transactions import (
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

_ONGOING: Final = "Ongoing"
_END_TXN_VERSION_MAX: Final = 4  # newer ones begin the producer's next transaction; these producers have only one

R = TypeVar("R", bound=Message)


class ProducerIdentity(NamedTuple):
    """What a producer's batches are marked with, so that each is stored once."""

    id: int
    epoch: int
    is_transactional: bool


class OpenTransaction(NamedTuple):
    """A transaction that was written and is not committed yet."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class ProducerClient(KafkaClient):
    """A client that writes."""

    async def commits_together(self) -> bool:
        """Return whether the broker commits several transactions as one: Penstock does, Kafka does not."""

        async def attempt() -> bool:
            return (await self.any_node()).version_of(private_keys.COMMIT_TOGETHER) >= 0

        return await self.retry(attempt)

    async def topic_to_write(self, name: str) -> TopicInfo:
        """Return a topic, created if it is missing and the broker creates topics by itself; RequestRefusedError if not."""
        topics = await self.known_topics([name])
        if name not in topics:
            await self.retry(lambda: self._create(name))
            topics = await self.topics([name])
        return topics[name]

    async def initialise(self, transactional_id: str | None, timeout_ms: int) -> ProducerIdentity:
        """Become the producer of a transactional id: an earlier one is fenced, and what it left open is aborted."""
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)

        async def attempt() -> ProducerIdentity:
            if transactional_id is None:
                reply = await self.call(keys.INIT_PRODUCER_ID, request, InitProducerIdResponse)
            else:
                reply = await self._call_coordinator(transactional_id, keys.INIT_PRODUCER_ID, request, InitProducerIdResponse)
            if reply.error_code:
                hint = "transactionTimeoutMs is more than the broker allows"
                is_timeout = reply.error_code == errors.INVALID_TRANSACTION_TIMEOUT
                raise self._refused(
                    "the broker gives out no producer id", transactional_id, reply.error_code, is_timeout and hint
                )
            return ProducerIdentity(reply.producer_id, reply.producer_epoch, transactional_id is not None)

        return await self.retry(attempt)

    async def record(self, key: str) -> bytes | None:
        """Return what was committed last under a key, None if nothing was."""
        request = ApplicationRecordRequest(record_key=key)

        async def attempt() -> bytes | None:
            reply = await self._call_coordinator(key, private_keys.APPLICATION_RECORD, request, ApplicationRecordResponse)
            if reply.error_code:
                raise self._refused(f"the record {key!r}", key, reply.error_code, reply.error_message)
            return reply.record_value

        return await self.retry(attempt)

    async def commit_together(
        self, transactions: Iterable[OpenTransaction], record: tuple[str, bytes], expected: bytes | None
    ) -> bool:
        """Commit all of these and set the record, or do nothing; return whether this call did it, not an earlier one. It can be
        repeated: the record tells what was done already."""
        key, value = record
        request = CommitTogetherRequest(
            record_key=key,
            record_value=value,
            expected_value=expected,
            transactions=[
                CommittedTransaction(
                    transactional_id=transaction.transactional_id,
                    producer_id=transaction.producer_id,
                    producer_epoch=transaction.producer_epoch,
                )
                for transaction in transactions
            ],
        )

        async def attempt() -> bool:
            reply = await self._call_coordinator(key, private_keys.COMMIT_TOGETHER, request, CommitTogetherResponse)
            if reply.error_code:
                raise self._refused("the rows were not committed", key, reply.error_code, reply.error_message)
            return not reply.already_committed

        return await self.retry(attempt)

    async def abort(self, transaction: OpenTransaction) -> None:
        """Abort a transaction if it is still open; what is committed stays."""
        name = transaction.transactional_id
        request = EndTxnRequest(
            transactional_id=name,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            committed=False,
        )

        async def attempt() -> None:
            reply = await self._call_coordinator(name, keys.END_TXN, request, EndTxnResponse, _END_TXN_VERSION_MAX)
            if errors.is_retriable(reply.error_code):
                raise self._refused(f"transaction {name!r}", name, reply.error_code)

        await self.retry(attempt)

    async def open_transactions(self, prefix: str) -> list[str]:
        """Return the transactional ids with this prefix that have an open transaction."""
        request = ListTransactionsRequest(state_filters=[_ONGOING], transactional_id_pattern=re.escape(prefix) + ".*")

        async def attempt() -> list[str]:
            reply = await self.call(keys.LIST_TRANSACTIONS, request, ListTransactionsResponse)
            if reply.error_code:
                raise RequestRefusedError("open transactions cannot be listed", reply.error_code)
            # An older broker ignores the pattern.
            ids = (state.transactional_id for state in reply.transaction_states)
            return [transactional_id for transactional_id in ids if transactional_id.startswith(prefix)]

        return await self.retry(attempt)

    async def _call_coordinator(
        self, name: str, key: int, request: Message, response: type[R], version_max: int | None = None
    ) -> R:
        connection = await self.coordinator(TRANSACTION, name)
        return await self.call_on(connection, key, request, response, version=connection.version_of(key, version_max))

    def _refused(self, subject: str, name: str | None, error_code: int, reason: str | bool | None = None) -> RequestRefusedError:
        if name is not None:
            self.forget_coordinator(TRANSACTION, name)
        return RequestRefusedError(subject, error_code, reason or None if isinstance(reason, str) else None)

    async def _create(self, name: str) -> None:
        (topic,) = (await self.metadata([name], create=True)).topics
        if topic.error_code == errors.UNKNOWN_TOPIC_OR_PARTITION:
            raise RequestRefusedError(
                f"topic {name!r}",
                errors.INVALID_TOPIC_EXCEPTION,
                "it does not exist, and the broker does not create topics by itself: create it",
            )
        if topic.error_code:
            raise RequestRefusedError(f"topic {name!r}", topic.error_code)
