"""Transactions as they travel: both versions of the protocol, the codes of each version, listings, and the private apis."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker import BrokerOptions
from penstock.kafka.protocol import errors, keys, private_keys
from penstock.kafka.protocol.cluster import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    TopicRequest,
)
from penstock.kafka.protocol.fetch import FetchResponse, PartitionData
from penstock.kafka.protocol.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from penstock.kafka.protocol.private import (
    ApplicationRecordRequest,
    ApplicationRecordResponse,
    CommittedTransaction,
    CommitTogetherRequest,
    CommitTogetherResponse,
)
from penstock.kafka.protocol.produce import ProduceResponse
from penstock.kafka.protocol.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from penstock.queue import split_batches
from penstock.testing.batches import make_batch, values_of
from tests.e2e.kafka.raw_client import RawClient, fetch_request, produce_request
from tests.e2e.kafka.running_gateway import RunningGateway

READ_COMMITTED = 1
TRANSACTIONAL, CONTROL = 0x10, 0x20


class RawProducer:
    """A transactional producer that speaks the versions it is told to."""

    def __init__(self, client: RawClient, transactional_id: str, topic: str) -> None:
        self._client = client
        self.transactional_id = transactional_id
        self._topic = topic
        self.id, self.epoch = -1, -1
        self._sequence = 0

    def init(self, version: int = 4, timeout_ms: int = 60_000) -> int:
        """Take the id over; the error code."""
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms)
        response = self._client.call(keys.INIT_PRODUCER_ID, version, request, InitProducerIdResponse)
        self._become(response.producer_id, response.producer_epoch)
        return response.error_code

    def add(self, version: int = 3) -> int:
        """Make the topic's partition part of the transaction; the error code."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self._topic, partitions=[0])],
        )
        response = self._client.call(keys.ADD_PARTITIONS_TO_TXN, version, request, AddPartitionsToTxnResponse)
        return response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code

    def send(self, value: bytes, version: int = 11) -> int:
        """Write one message; the error code."""
        batch = make_batch(
            [value], attributes=TRANSACTIONAL, producer_id=self.id, producer_epoch=self.epoch, base_sequence=self._sequence
        )
        request = produce_request(self._topic, batch)
        request.transactional_id = self.transactional_id
        response = self._client.call(keys.PRODUCE, version, request, ProduceResponse)
        code = response.responses[0].partition_responses[0].error_code
        self._sequence += not code
        return code

    def end(self, *, commit: bool, version: int = 3) -> int:
        """Commit or abort; the error code."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id, producer_id=self.id, producer_epoch=self.epoch, committed=commit
        )
        response = self._client.call(keys.END_TXN, version, request, EndTxnResponse)
        if version >= 5 and not response.error_code:
            self._become(response.producer_id, response.producer_epoch)
        return response.error_code

    def _become(self, producer_id: int, epoch: int) -> None:
        self.id, self.epoch, self._sequence = producer_id, epoch, 0


@pytest.fixture
def producer(client: RawClient, topic: str) -> RawProducer:
    """A producer with an id of its own."""
    return RawProducer(client, f"id-{topic}", topic)


def _fetch(client: RawClient, topic: str, offset: int = 0) -> PartitionData:
    request = fetch_request(topic, offset)
    request.isolation_level = READ_COMMITTED
    return client.call(keys.FETCH, 11, request, FetchResponse).responses[0].partitions[0]


def _latest(client: RawClient, topic: str, isolation_level: int) -> int:
    asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    request = ListOffsetsRequest(isolation_level=isolation_level, topics=[asked])
    response = client.call(keys.LIST_OFFSETS, 5, request, ListOffsetsResponse)
    return response.topics[0].partitions[0].offset


def test_version_1_keeps_the_epoch(client: RawClient, producer: RawProducer, topic: str) -> None:
    assert producer.init() == 0
    assert producer.send(b"too early") == errors.TRANSACTION_ABORTABLE
    assert producer.send(b"too early", version=10) == errors.INVALID_TXN_STATE
    assert [producer.add(), producer.send(b"one"), producer.end(commit=True)] == [0, 0, 0]
    assert producer.end(commit=True) == 0  # once more
    assert producer.end(commit=False) == errors.INVALID_TXN_STATE
    assert [producer.add(), producer.send(b"two"), producer.end(commit=False)] == [0, 0, 0]
    fetched = _fetch(client, topic)
    assert (fetched.last_stable_offset, fetched.high_watermark) == (4, 4)
    assert [(one.producer_id, one.first_offset) for one in fetched.aborted_transactions or []] == [(producer.id, 2)]


def test_version_2_adds_partitions_by_itself_and_raises_the_epoch(client: RawClient, producer: RawProducer, topic: str) -> None:
    assert producer.init(version=5) == 0
    first = (producer.id, producer.epoch)
    assert [producer.send(b"one", version=12), producer.send(b"two", version=12)] == [0, 0]
    assert producer.end(commit=True, version=5) == 0
    assert (producer.id, producer.epoch) == (first[0], first[1] + 1)
    assert producer.send(b"three", version=12) == 0
    assert producer.end(commit=False, version=5) == 0
    producer.id, producer.epoch = first
    assert producer.send(b"late", version=12) == errors.INVALID_PRODUCER_EPOCH
    fetched = _fetch(client, topic)
    assert [one.first_offset for one in fetched.aborted_transactions or []] == [3]


def test_a_repeat_of_the_end_in_version_2_gives_the_same_answer(producer: RawProducer) -> None:
    producer.init(version=5)
    first = (producer.id, producer.epoch)
    producer.send(b"one", version=12)
    assert producer.end(commit=True, version=5) == 0
    after = (producer.id, producer.epoch)
    producer.id, producer.epoch = first
    assert producer.end(commit=True, version=5) == 0
    assert (producer.id, producer.epoch) == after


def test_a_fenced_producer_is_told_so_in_words_of_its_version(client: RawClient, producer: RawProducer, topic: str) -> None:
    producer.init()
    producer.add()
    RawProducer(client, producer.transactional_id, topic).init()
    assert [producer.add(version) for version in (1, 2)] == [errors.INVALID_PRODUCER_EPOCH, errors.PRODUCER_FENCED]
    codes = [producer.end(commit=True, version=version) for version in (1, 2, 5)]
    assert codes == [errors.INVALID_PRODUCER_EPOCH, errors.PRODUCER_FENCED, errors.PRODUCER_FENCED]
    assert producer.send(b"late") == errors.INVALID_PRODUCER_EPOCH
    group = AddOffsetsToTxnRequest(
        transactional_id=producer.transactional_id, producer_id=producer.id, producer_epoch=producer.epoch, group_id="g"
    )
    told = [client.call(keys.ADD_OFFSETS_TO_TXN, version, group, AddOffsetsToTxnResponse).error_code for version in (1, 2)]
    assert told == [errors.INVALID_PRODUCER_EPOCH, errors.PRODUCER_FENCED]
    expected = InitProducerIdRequest(
        transactional_id=producer.transactional_id,
        transaction_timeout_ms=1000,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
    )
    told = [client.call(keys.INIT_PRODUCER_ID, version, expected, InitProducerIdResponse).error_code for version in (3, 4)]
    assert told == [errors.INVALID_PRODUCER_EPOCH, errors.PRODUCER_FENCED]


def test_unknown_producers_and_bad_timeouts_are_refused(client: RawClient, producer: RawProducer, topic: str) -> None:
    assert producer.add() == errors.INVALID_PRODUCER_ID_MAPPING
    assert producer.init(timeout_ms=0) == errors.INVALID_TRANSACTION_TIMEOUT
    assert producer.init(timeout_ms=900_001) == errors.INVALID_TRANSACTION_TIMEOUT
    assert RawProducer(client, "", topic).init() == errors.INVALID_REQUEST
    assert producer.init() == 0
    producer.id += 1_000_000
    assert producer.add() == errors.INVALID_PRODUCER_ID_MAPPING
    assert producer.send(b"of a stranger") == errors.INVALID_PRODUCER_ID_MAPPING


def test_readers_of_committed_data_see_the_last_stable_offset(client: RawClient, producer: RawProducer, topic: str) -> None:
    producer.init()
    client.produce(topic, make_batch([b"plain"]))
    producer.add()
    producer.send(b"open")
    client.produce(topic, make_batch([b"plain"]))
    assert (_latest(client, topic, 0), _latest(client, topic, READ_COMMITTED)) == (3, 1)
    fetched = _fetch(client, topic)
    assert (fetched.last_stable_offset, fetched.high_watermark) == (1, 3)
    assert isinstance(fetched.records, memoryview)
    assert values_of(fetched.records) == [(0, b"plain")]
    assert not _fetch(client, topic, 1).records
    producer.end(commit=True)
    assert _latest(client, topic, READ_COMMITTED) == 4


def test_readers_of_committed_data_leave_out_the_aborted_where_it_comes_from_files(tmp_path: Path) -> None:
    filling = bytes(range(256)) * 2000
    with RunningGateway(tmp_path, broker_options=BrokerOptions(cache_bytes=0)) as gateway:
        gateway.create_topic("cold")
        with RawClient(gateway.port) as client:
            producer = RawProducer(client, "cold", "cold")
            producer.init()
            for number in range(12):
                producer.add()
                for _ in range(5):
                    assert producer.send(b"%03d" % number + filling) == 0
                producer.end(commit=number % 3 != 1)
            producer.add()
            producer.send(b"open")
        gateway.restart()
        with RawClient(gateway.port) as client:
            found, end = _committed_values(client, "cold")
    assert found == [b"%03d" % number for number in range(12) if number % 3 != 1 for _ in range(5)]
    assert end == 12 * 6


def _committed_values(client: RawClient, topic: str) -> tuple[list[bytes], int]:
    """The first bytes of every value that a reader of committed data keeps, as clients decide it, and where it ends."""
    found: list[bytes] = []
    offset = 0
    while True:
        request = fetch_request(topic, offset, max_bytes=20 << 20)
        request.isolation_level = READ_COMMITTED
        fetched = client.call(keys.FETCH, 11, request, FetchResponse).responses[0].partitions[0]
        if not fetched.records:
            return found, offset
        assert isinstance(fetched.records, memoryview)
        aborted = sorted((one.first_offset, one.producer_id) for one in fetched.aborted_transactions or [])
        skipping: set[int] = set()
        for batch in split_batches(fetched.records):
            base_offset, producer_id = int.from_bytes(batch[:8], "big"), int.from_bytes(batch[43:51], "big")
            while aborted and aborted[0][0] <= base_offset:
                skipping.add(aborted.pop(0)[1])
            if batch[22] & CONTROL:
                skipping.discard(producer_id)
            elif producer_id not in skipping:
                found += (value[:3] for _, value in values_of(batch))
            offset = base_offset + int.from_bytes(batch[23:27], "big") + 1


def test_partitions_are_added_all_or_none(client: RawClient, producer: RawProducer, topic: str) -> None:
    producer.init()
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id,
        v3_and_below_producer_id=producer.id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0, 7])],
    )
    response = client.call(keys.ADD_PARTITIONS_TO_TXN, 3, request, AddPartitionsToTxnResponse)
    codes = [one.partition_error_code for one in response.results_by_topic_v3_and_below[0].results_by_partition]
    assert codes == [errors.OPERATION_NOT_ATTEMPTED, errors.UNKNOWN_TOPIC_OR_PARTITION]
    assert producer.send(b"x") == errors.TRANSACTION_ABORTABLE


@pytest.mark.parametrize(("version", "outside"), [(4, errors.INVALID_TXN_STATE), (5, errors.TRANSACTION_ABORTABLE)])
def test_whether_a_partition_is_in_a_transaction_can_be_asked(
    client: RawClient, producer: RawProducer, topic: str, version: int, outside: int
) -> None:
    def ask(*, verify_only: bool) -> int:
        asked = AddPartitionsToTxnTransaction(
            transactional_id=producer.transactional_id,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            verify_only=verify_only,
            topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )
        request = AddPartitionsToTxnRequest(transactions=[asked])
        response = client.call(keys.ADD_PARTITIONS_TO_TXN, version, request, AddPartitionsToTxnResponse)
        return response.results_by_transaction[0].topic_results[0].results_by_partition[0].partition_error_code

    producer.init()
    assert [ask(verify_only=True), ask(verify_only=False), ask(verify_only=True)] == [outside, 0, 0]


def test_transactions_are_described_and_listed(
    gateway: RunningGateway, client: RawClient, producer: RawProducer, topic: str
) -> None:
    name = producer.transactional_id
    producer.init()
    producer.add()
    producer.send(b"open")
    described = client.call(
        keys.DESCRIBE_TRANSACTIONS,
        0,
        DescribeTransactionsRequest(transactional_ids=[name, "absent"]),
        DescribeTransactionsResponse,
    ).transaction_states
    assert (described[0].transaction_state, described[0].producer_id) == ("Ongoing", producer.id)
    assert [(one.topic, one.partitions) for one in described[0].topics] == [(topic, [0])]
    assert described[0].transaction_start_time_ms > 0
    assert described[1].error_code == errors.TRANSACTIONAL_ID_NOT_FOUND

    def listed(**filters: object) -> list[str]:
        request = ListTransactionsRequest(**filters)  # type: ignore[arg-type]
        with RawClient(gateway.coordinator_port) as lister:
            response = lister.call(keys.LIST_TRANSACTIONS, 2, request, ListTransactionsResponse)
        return [one.transactional_id for one in response.transaction_states if one.transactional_id == name]

    assert listed() == [name]
    assert listed(state_filters=["Ongoing"]) == listed(producer_id_filters=[producer.id]) == [name]
    assert listed(state_filters=["Empty"]) == listed(producer_id_filters=[-7]) == listed(duration_filter=3_600_000) == []
    assert listed(transactional_id_pattern=f"{name}.*") == [name]
    assert listed(transactional_id_pattern="no") == []
    odd = ListTransactionsRequest(state_filters=["Odd"], transactional_id_pattern="(")
    with RawClient(gateway.coordinator_port) as lister:
        response = lister.call(keys.LIST_TRANSACTIONS, 2, odd, ListTransactionsResponse)
    assert (response.error_code, response.unknown_state_filters) == (errors.INVALID_REGULAR_EXPRESSION, ["Odd"])


def test_producers_are_described_with_their_open_transaction(client: RawClient, producer: RawProducer, topic: str) -> None:
    producer.init()
    producer.add()
    producer.send(b"open")

    def described() -> tuple[int, int, int, bool]:
        asked = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
        found = client.call(keys.DESCRIBE_PRODUCERS, 0, asked, DescribeProducersResponse).topics[0].partitions[0]
        (one,) = found.active_producers
        return one.producer_epoch, one.last_sequence, one.current_txn_start_offset, one.coordinator_epoch > 0

    assert described() == (0, 0, 0, False)  # no coordinator has ended a transaction of it here
    heir = RawProducer(client, producer.transactional_id, topic)
    heir.init()
    assert described() == (1, -1, -1, True)  # the marker of the abort carries the next epoch
    heir.add()
    heir.send(b"again")
    assert described() == (heir.epoch, 0, 2, True)


def test_the_coordinator_of_transactions_is_found(client: RawClient, gateway: RunningGateway) -> None:
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=["any"])
    (found,) = client.call(keys.FIND_COORDINATOR, 4, request, FindCoordinatorResponse).coordinators
    assert (found.error_code, found.port) == (0, gateway.coordinator_port)


def _commit_offset(client: RawClient, producer: RawProducer, topic: str, *, group: str, version: int) -> int:
    place = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata="m")
    request = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=group,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[place])],
    )
    response = client.call(keys.TXN_OFFSET_COMMIT, version, request, TxnOffsetCommitResponse)
    return response.topics[0].partitions[0].error_code


def _position(client: RawClient, topic: str, group: str, *, stable: bool = False) -> tuple[int, int]:
    asked = OffsetFetchRequestGroup(group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])])
    request = OffsetFetchRequest(groups=[asked], require_stable=stable)
    found = client.call(keys.OFFSET_FETCH, 8, request, OffsetFetchResponse).groups[0].topics[0].partitions[0]
    return found.committed_offset, found.error_code


@pytest.mark.parametrize("version", [4, 5])
def test_positions_wait_for_the_end(client: RawClient, producer: RawProducer, topic: str, version: int) -> None:
    group = f"group-{topic}"
    producer.init()
    if version < 5:
        assert _commit_offset(client, producer, topic, group=group, version=version) == errors.TRANSACTION_ABORTABLE
        added = AddOffsetsToTxnRequest(
            transactional_id=producer.transactional_id, producer_id=producer.id, producer_epoch=producer.epoch, group_id=group
        )
        assert client.call(keys.ADD_OFFSETS_TO_TXN, 3, added, AddOffsetsToTxnResponse).error_code == 0
    assert _commit_offset(client, producer, topic, group=group, version=version) == 0
    assert _position(client, topic, group) == (-1, 0)
    assert _position(client, topic, group, stable=True)[1] == errors.UNSTABLE_OFFSET_COMMIT
    assert producer.end(commit=True) == 0
    assert _position(client, topic, group, stable=True) == (3, 0)


@pytest.fixture
def pair(client: RawClient, topic: str) -> Iterator[list[RawProducer]]:
    """Two producers with a message each in open transactions."""
    producers = [RawProducer(client, f"{topic}-{number}", topic) for number in range(2)]
    for one in producers:
        one.init()
        one.add()
        one.send(one.transactional_id.encode())
    yield producers
    for one in producers:
        one.init()


def _together(pair: list[RawProducer], key: str, value: bytes, expected: bytes | None = None) -> CommitTogetherRequest:
    ends = [
        CommittedTransaction(transactional_id=one.transactional_id, producer_id=one.id, producer_epoch=one.epoch) for one in pair
    ]
    return CommitTogetherRequest(record_key=key, record_value=value, expected_value=expected, transactions=ends)


def test_several_transactions_are_committed_as_one(client: RawClient, pair: list[RawProducer], topic: str) -> None:
    def commit(request: CommitTogetherRequest) -> CommitTogetherResponse:
        return client.call(private_keys.COMMIT_TOGETHER, 0, request, CommitTogetherResponse)

    def record() -> bytes | None:
        asked = ApplicationRecordRequest(record_key=topic)
        return client.call(private_keys.APPLICATION_RECORD, 0, asked, ApplicationRecordResponse).record_value

    assert record() is None
    done = commit(_together(pair, topic, b"1"))
    assert (done.error_code, done.already_committed) == (0, False)
    assert [one.producer_epoch for one in done.transactions] == [1, 1]
    assert record() == b"1"
    assert _latest(client, topic, READ_COMMITTED) == 4
    assert commit(_together(pair, topic, b"1")).already_committed
    conflict = commit(_together(pair, topic, b"2", expected=b"0"))
    assert (conflict.error_code, bool(conflict.error_message)) == (errors.INVALID_UPDATE_VERSION, True)
    assert commit(_together(pair, topic, b"2", expected=b"1")).error_code == errors.INVALID_TXN_STATE


def test_only_penstock_itself_is_told_of_private_apis(client: RawClient) -> None:
    def told(software: str) -> set[int]:
        request = ApiVersionsRequest(client_software_name=software, client_software_version="1")
        response = client.call(keys.API_VERSIONS, 3, request, ApiVersionsResponse)
        features = {one.name: one.max_version_level for one in response.finalized_features}
        assert features["transaction.version"] == 2
        assert response.finalized_features_epoch >= 0
        return {one.api_key for one in response.api_keys}

    private = {private_keys.COMMIT_TOGETHER, private_keys.APPLICATION_RECORD}
    assert told("penstock") >= private
    assert not told("other") & private
