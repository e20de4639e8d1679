"""The cluster as a sink sees it: topics to write to, and who keeps transactions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.kafka.protocol import errors, keys, private_keys
from penstock.kafka.protocol.cluster import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.kafka.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
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
from penstock.spark.batch_building import Producer
from penstock.spark.cluster import Cluster, RefusedError, TopicInfo
from penstock.spark.connection import Address, Connection

_TRANSACTION: Final = 1
_ONGOING: Final = "Ongoing"
_END_VERSION_MAX: Final = 4  # newer ones begin the next transaction of a producer; ours have only one


class OpenTransaction(NamedTuple):
    """A transaction that a task has written, and that nobody sees until the driver commits it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class WritingCluster(Cluster):
    """Whoever is behind the bootstrap addresses, for writers."""

    def commits_together(self) -> bool:
        """Whether several transactions can be committed as one here: Penstock can, Kafka cannot."""
        return self.persist(lambda: self.any_node().version_of(private_keys.COMMIT_TOGETHER) >= 0)

    def topic_to_write(self, name: str) -> TopicInfo:
        """A topic, made now if it is not there and the broker makes topics by itself. RefusedError if it does not."""
        found = self.known_topics([name])
        if name not in found:
            self.persist(lambda: self._make(name))
            found = self.topics([name])
        return found[name]

    def initialise(self, transactional_id: str | None, timeout_ms: int) -> Producer:
        """Become the producer of a transactional id; whoever was that before is fenced, and what it left open is aborted."""

        def attempt() -> Producer:
            request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
            node = self.any_node() if transactional_id is None else self._coordinator_of(transactional_id)
            answer = self._call(node, keys.INIT_PRODUCER_ID, request, InitProducerIdResponse)
            if answer.error_code:
                hint = "transactionTimeoutMs is more than the broker allows"
                is_timeout = answer.error_code == errors.INVALID_TRANSACTION_TIMEOUT
                raise RefusedError("the broker gives out no producer id", answer.error_code, hint if is_timeout else "")
            return Producer(answer.producer_id, answer.producer_epoch, transactional_id is not None)

        return self.persist(attempt)

    def record(self, key: str) -> bytes | None:
        """What was committed last under a key; None if nothing was."""

        def attempt() -> bytes | None:
            request = ApplicationRecordRequest(record_key=key)
            answer = self._call(self._coordinator_of(key), private_keys.APPLICATION_RECORD, request, ApplicationRecordResponse)
            if answer.error_code:
                raise RefusedError(f"the record {key!r}", answer.error_code, answer.error_message or "")
            return answer.record_value

        return self.persist(attempt)

    def commit_together(self, transactions: Iterable[OpenTransaction], record: tuple[str, bytes], expected: bytes | None) -> bool:
        """Commit all of these and set the record, or nothing of it; whether it was done by this, not before. It can be tried
        again: the record tells what was done already."""
        key, value = record
        ended = [
            CommittedTransaction(
                transactional_id=one.transactional_id, producer_id=one.producer_id, producer_epoch=one.producer_epoch
            )
            for one in transactions
        ]

        def attempt() -> bool:
            request = CommitTogetherRequest(record_key=key, record_value=value, expected_value=expected, transactions=ended)
            answer = self._call(self._coordinator_of(key), private_keys.COMMIT_TOGETHER, request, CommitTogetherResponse)
            if answer.error_code:
                raise RefusedError("the rows were not committed", answer.error_code, answer.error_message or "")
            return not answer.already_committed

        return self.persist(attempt)

    def abort(self, transaction: OpenTransaction) -> None:
        """Take back what a transaction has written, if it is still open; what is committed stays."""

        def attempt() -> None:
            request = EndTxnRequest(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                committed=False,
            )
            node = self._coordinator_of(transaction.transactional_id)
            answer = self._call(
                node, keys.END_TXN, request, EndTxnResponse, version=node.version_of(keys.END_TXN, _END_VERSION_MAX)
            )
            if errors.is_retriable(answer.error_code):
                raise RefusedError(f"transaction {transaction.transactional_id!r}", answer.error_code)

        self.persist(attempt)

    def open_transactions(self, prefix: str) -> list[str]:
        """Transactional ids with this prefix that have something open."""

        def attempt() -> list[str]:
            request = ListTransactionsRequest(state_filters=[_ONGOING], transactional_id_pattern=re.escape(prefix) + ".*")
            answer = self._call_any(keys.LIST_TRANSACTIONS, request, ListTransactionsResponse)
            if answer.error_code:
                raise RefusedError("open transactions cannot be listed", answer.error_code)
            # An older broker does not know patterns.
            return [one.transactional_id for one in answer.transaction_states if one.transactional_id.startswith(prefix)]

        return self.persist(attempt)

    def _make(self, name: str) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
        (topic,) = self._call_any(keys.METADATA, request, MetadataResponse).topics
        if topic.error_code == errors.UNKNOWN_TOPIC_OR_PARTITION:
            raise RefusedError(
                f"topic {name!r}", errors.INVALID_TOPIC_EXCEPTION, "it does not exist, and is not made by itself: make it"
            )
        if topic.error_code:
            raise RefusedError(f"topic {name!r}", topic.error_code)

    def _coordinator_of(self, transactional_id: str) -> Connection:
        asked = FindCoordinatorRequest(key=transactional_id, key_type=_TRANSACTION, coordinator_keys=[transactional_id])
        answer = self._call_any(keys.FIND_COORDINATOR, asked, FindCoordinatorResponse)
        found = answer.coordinators[0] if answer.coordinators else answer
        if found.error_code:
            raise RefusedError(f"the coordinator of {transactional_id!r}", found.error_code)
        return self.connect(Address(found.host, found.port))
