"""The records of batches are checked before they are stored, as Kafka does, also within compression, and in their order."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from penstock.broker import TopicConfig
from penstock.broker.transactions import InvalidTransactionStateError
from penstock.core.record_compression import GZIP, LZ4, NONE, PLAIN_BYTES_MAX, SNAPPY, ZSTD, compress_like
from penstock.core.record_format import Writer, framed, header_at, packed_record
from penstock.kafka.protocol import errors, keys
from penstock.kafka.protocol.fetch import FetchResponse
from penstock.kafka.protocol.produce import ProduceResponse
from penstock.queue import WriteResult
from penstock.testing.batches import keyed_records_of
from tests.e2e.kafka.raw_client import RawClient, fetch_request, produce_request
from tests.e2e.kafka.running_gateway import RunningGateway
from tests.e2e.kafka.test_produce import batch_of

CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
codecs = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
SMALL, LARGE = 10, 100_000  # of one value: the larger is checked in a thread

_random = random.Random(17)


def _values(count: int, size: int) -> list[bytes]:
    return [_random.randbytes(size) for _ in range(count)]


NO_PRODUCER = Writer(-1, -1, -1)


def _batch(codec: int, records: bytes, count: int, *, writer: Writer = NO_PRODUCER, latest_ms: int = 0) -> bytes:
    now_ms = int(time.time() * 1000)
    packed = records if codec == NONE else compress_like(codec, memoryview(b""), records)
    return framed(packed, count, (now_ms, latest_ms or now_ms), attributes=codec, writer=writer)


def _good(codec: int, values: list[bytes], writer: Writer = NO_PRODUCER) -> bytes:
    records = b"".join(packed_record(delta, value) for delta, value in enumerate(values))
    return _batch(codec, records, len(values), writer=writer)


@codecs
@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["in place", "in a thread"])
def test_garbage_in_a_batch_is_refused_and_nothing_is_stored(client: RawClient, topic: str, codec: int, size: int) -> None:
    value = _random.randbytes(size)
    good = packed_record(0, value)
    for records, count in ((value, 1), (good[:-1], 1), (good, 2), (good + good, 2), (good + b"more", 1)):
        refused = client.produce(topic, _batch(codec, records, count))
        assert (refused.error_code, refused.base_offset) == (errors.INVALID_RECORD, -1)
        assert refused.error_message
        assert "not what its header says" in refused.error_message
    if codec != NONE:
        damaged = framed(value, 1, (0, 0), attributes=codec)
        assert client.produce(topic, damaged).error_code == errors.INVALID_RECORD
    assert client.produce(topic, _good(codec, [value])).base_offset == 0


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD], ids=["gzip", "lz4", "zstd"])
def test_a_batch_that_grows_beyond_all_bounds_is_refused(client: RawClient, topic: str, codec: int) -> None:
    records = packed_record(0, bytes(PLAIN_BYTES_MAX))
    batch = _batch(codec, records, 1)
    assert len(batch) < 1_000_000
    assert client.produce(topic, batch).error_code == errors.INVALID_RECORD
    assert client.produce(topic, batch_of(b"good")).base_offset == 0


def test_batches_are_stored_in_the_order_they_came_in_though_some_take_longer(client: RawClient, topic: str) -> None:
    """Of an idempotent producer: one that is overtaken would be refused."""
    values = [_values(50, 2000) if number % 3 == 0 else _values(2, 10) for number in range(30)]
    sequence = 0
    for number, some in enumerate(values):
        codec = list(CODECS.values())[number % 5]
        client.send(keys.PRODUCE, 9, produce_request(topic, _good(codec, some, Writer(7, 0, sequence))))
        sequence += len(some)
    offset = 0
    for some in values:
        _, response = client.receive(keys.PRODUCE, 9, ProduceResponse)
        stored = response.responses[0].partition_responses[0]
        assert (stored.error_code, stored.base_offset) == (errors.NONE, offset)
        offset += len(some)
    found: list[bytes | None] = []
    while len(found) < offset:
        data = client.fetch(topic, len(found), max_bytes=10 << 20)
        assert isinstance(data.records, memoryview)
        found += [record.value for record in keyed_records_of(data.records)]
    assert found == [value for some in values for value in some]


def test_a_bad_batch_in_a_thread_does_not_harm_those_behind_it(client: RawClient, topic: str) -> None:
    client.send(keys.PRODUCE, 9, produce_request(topic, _batch(LZ4, _random.randbytes(LARGE), 1)))
    client.send(keys.PRODUCE, 9, produce_request(topic, batch_of(b"behind")))
    outcomes = []
    for _ in range(2):
        _, response = client.receive(keys.PRODUCE, 9, ProduceResponse)
        outcomes.append(response.responses[0].partition_responses[0])
    assert [one.error_code for one in outcomes] == [errors.INVALID_RECORD, errors.NONE]
    assert outcomes[1].base_offset == 0


@codecs
def test_the_latest_time_is_that_of_the_records(client: RawClient, topic: str, codec: int) -> None:
    """A producer that says otherwise could have its messages dropped too early, or never."""
    for wrong_ms in (5, int(time.time() * 1000) - 1):
        records = packed_record(0, b"a", time_delta=30) + packed_record(1, b"b", time_delta=-20)
        assert client.produce(topic, _batch(codec, records, 2, latest_ms=wrong_ms)).error_code == errors.NONE
    data = client.fetch(topic, 0)
    assert isinstance(data.records, memoryview)
    header = header_at(data.records)
    assert header.max_ms == header.base_ms + 30
    assert len(keyed_records_of(data.records)) == 4  # which also looks at checksums and times


def test_a_time_out_of_bounds_is_found_behind_a_header_that_hides_it(client: RawClient, topic: str) -> None:
    records = packed_record(0, b"a") + packed_record(1, b"b", time_delta=7_200_000) + packed_record(2, b"c")
    assert client.produce(topic, _batch(NONE, records, 3)).error_code == errors.INVALID_TIMESTAMP


def test_what_only_a_broker_may_say_in_a_header_is_refused(client: RawClient, topic: str) -> None:
    good = batch_of(b"a")
    assert client.produce(topic, (5).to_bytes(8, "big") + good[8:]).error_code == errors.INVALID_RECORD
    assert client.produce(topic, batch_of(b"a", attributes=0x08)).error_code == errors.INVALID_TIMESTAMP
    assert client.produce(topic, batch_of(b"a", producer_id=5, epoch=0, sequence=-1)).error_code == errors.INVALID_RECORD
    assert client.produce(topic, good).base_offset == 0


def test_zstd_is_for_versions_that_know_it(client: RawClient, gateway: RunningGateway, topic: str) -> None:
    batch = _good(ZSTD, [b"a"])
    assert client.produce(topic, batch, version=6).error_code == errors.UNSUPPORTED_COMPRESSION_TYPE
    assert client.produce(topic, batch, version=7).error_code == errors.NONE
    gateway.run(gateway.broker.configure_topic(topic, TopicConfig({"compression.type": "zstd"})))
    for version, code in ((9, errors.UNSUPPORTED_COMPRESSION_TYPE), (10, errors.NONE)):
        response = client.call(keys.FETCH, version, fetch_request(topic, 0), FetchResponse)
        assert response.responses[0].partitions[0].error_code == code


def test_a_large_batch_for_a_topic_with_its_own_compression_is_stored_in_it(client: RawClient, gateway: RunningGateway) -> None:
    gateway.run(gateway.broker.create_topic("packed", 1, TopicConfig({"compression.type": "lz4"})))
    values = _values(20, 10_000)
    assert client.produce("packed", _good(ZSTD, values)).base_offset == 0
    assert client.produce("packed", _good(LZ4, [b"small"])).base_offset == 20
    data = client.fetch("packed", 0)
    assert isinstance(data.records, memoryview)
    assert header_at(data.records).attributes & 7 == LZ4
    assert [record.value for record in keyed_records_of(data.records)] == [*values, b"small"]


def test_a_batch_whose_transaction_ended_while_it_was_checked_is_refused(gateway: RunningGateway, topic: str) -> None:
    """If it were stored, it would begin a transaction that is never ended."""

    async def begin() -> None:
        def admit() -> None:
            raise InvalidTransactionStateError("the transaction has ended meanwhile")

        partition = gateway.partition(topic)
        broker = gateway.broker_of(topic)
        outcome: asyncio.Future[WriteResult] = asyncio.get_running_loop().create_future()
        batch = _good(LZ4, [_random.randbytes(LARGE)])
        broker.begin_produce(broker.route(topic, 0), batch, outcome, from_client=True, admit=admit)
        with pytest.raises(InvalidTransactionStateError):
            await outcome
        assert partition.end_offset == 0

    gateway.run(begin())
