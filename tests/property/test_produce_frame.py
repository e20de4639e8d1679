"""Produce requests taken apart and answered by the kernel, compiled and as plain Python, against the codecs of the protocol and
the checks of the broker: the same batches, the same decisions, the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker.intake import check_header
from penstock.core.errors import PenstockError
from penstock.core.record_format import HEADER_SIZE, Writer, framed, packed_record, seal_batch
from penstock.kafka.protocol import decode_request, encode_request, encode_response, keys
from penstock.kafka.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from penstock.kernels import produce_frame
from penstock.kernels.produce_frame import COPIED_MAX, RECORDS_MAX, ProducedBatch, ProduceFrame
from penstock.queue import InvalidBatchError, WriteResult, check_batch, check_plain_records
from tests.kernel_forms import uncompiled

PLAIN = uncompiled("produce_frame")
VERSIONS = range(3, 14)
FIELDS = (
    *("attributes", "messages", "base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence"),
    *("base_offset", "codec", "is_transactional", "is_control"),
)


def _frames_of(module: Any) -> type[ProduceFrame]:
    class Frame(module.ProduceFrame):  # type: ignore[misc]
        settlements = 0

        def settled(self) -> None:
            self.settlements += 1

    return Frame


FORMS = {"as installed": _frames_of(produce_frame), "uncompiled": _frames_of(PLAIN)}
forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)

int64 = st.integers(-(1 << 63), (1 << 63) - 1)
octets = st.none() | st.binary(max_size=30)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """A batch as a client sends it; some say something wrong of themselves."""
    contents = draw(st.lists(st.tuples(octets, octets, st.sampled_from([0, 0, 0, 5, -3, 1 << 62])), min_size=1, max_size=4))
    records = b"".join(
        packed_record(delta, value, key=key, time_delta=time_delta, headers=[(b"h", key)] if delta else [])
        for delta, (key, value, time_delta) in enumerate(contents)
    )
    writer = Writer(*draw(st.sampled_from([(-1, -1, -1), (7, 0, 0), (7, 3, 12), (7, 0, -1)])))
    base_ms = draw(st.sampled_from([0, 1_700_000_000_000, -1]) | int64)
    latest_ms = draw(st.just(base_ms) | int64)
    attributes = draw(st.sampled_from([0] * 8 + [1, 3, 4, 8, 0x10, 0x20, 0x100, 5]))
    count = len(contents) + draw(st.sampled_from([0] * 9 + [1]))
    base_offset = draw(st.sampled_from([0] * 9 + [5]))
    return framed(records, count, (base_ms, latest_ms), attributes=attributes, writer=writer, base_offset=base_offset)


@st.composite
def requests(draw: st.DrawFn, content: st.SearchStrategy[bytes]) -> tuple[int, ProduceRequest]:
    """A version, and a request to one or several topics and partitions."""
    version = draw(st.sampled_from(VERSIONS))
    names = draw(st.lists(st.sampled_from(["t", "topic-ü", "x" * 200]), min_size=1, max_size=3))
    topics = [
        TopicProduceData(
            name=name if version < 13 else "",
            topic_id=bytes(draw(st.binary(min_size=16, max_size=16))) if version >= 13 else bytes(16),
            partition_data=[
                PartitionProduceData(index=draw(st.integers(0, 300)), records=draw(content))
                for _ in range(draw(st.integers(1, 3)))
            ],
        )
        for name in names
    ]
    acks = draw(st.sampled_from([-1, 0, 1]))
    return version, ProduceRequest(acks=acks, timeout_ms=draw(st.integers(0, 1 << 30)), topic_data=topics)


def _encoded(version: int, request: ProduceRequest, client_id: str | None = "client-ü") -> bytearray:
    return bytearray(b"".join(encode_request(keys.PRODUCE, version, -7, client_id, request)[0]))


def _partitions(request: ProduceRequest, version: int) -> Iterator[tuple[str | bytes, int, bytes]]:
    for topic in request.topic_data:
        for data in topic.partition_data:
            assert isinstance(data.records, memoryview | bytes)
            yield (topic.topic_id if version >= 13 else topic.name), data.index, bytes(data.records)


def _passes(raw: bytes) -> tuple[int, int] | None:
    """The earliest and the latest time of a batch, if the broker takes it as it is; None if it does not."""
    try:
        batch = check_batch(raw, len(raw))
        check_header(batch)
        return check_plain_records(batch, batch.data, HEADER_SIZE)
    except PenstockError:
        return None


def _assert_same_request(parsed: ProduceFrame, frame: bytearray) -> None:
    request = decode_request(bytes(frame[4:]))
    body = request.body
    assert isinstance(body, ProduceRequest)
    assert parsed.version == request.api_version
    assert (parsed.correlation_id, parsed.client_id) == (request.correlation_id, request.client_id)
    assert (parsed.acks, parsed.timeout_ms, body.transactional_id) == (body.acks, body.timeout_ms, None)
    sent = list(_partitions(body, parsed.version))
    assert [(batch.topic, batch.index, bytes(batch.data)) for batch in parsed.batches] == sent
    assert [batch.partitions for batch in parsed.batches if batch.partitions] == [len(t.partition_data) for t in body.topic_data]
    for batch in parsed.batches:
        _assert_same_decision(batch)


def _assert_same_decision(batch: ProducedBatch) -> None:
    raw = bytes(batch.data)
    times = _passes(raw) if batch.attributes == 0 and batch.messages <= RECORDS_MAX else None
    assert batch.is_checked == (times is not None)
    if times is not None:
        assert (batch.earliest_ms, batch.latest_ms) == times
        expected = check_batch(raw, len(raw))
        assert {name: getattr(batch, name) for name in FIELDS} == {name: getattr(expected, name) for name in FIELDS}


@given(requests(batches()), st.sampled_from([None, "", "rdkafka", "client-ü"]))
def test_a_request_is_taken_apart_as_the_codec_does(case: tuple[int, ProduceRequest], client_id: str | None) -> None:
    version, request = case
    frame = _encoded(version, request, client_id)
    # What the gateway has to look at itself is left to the codec.
    attributes = [int.from_bytes(raw[21:23], "big") for _, _, raw in _partitions(request, version)]
    is_plain = all(each <= (4 if version >= 7 else 3) for each in attributes)
    for form in FORMS.values():
        parsed = form()
        assert parsed.parse(frame, 4, len(frame)) == is_plain
        if is_plain:
            _assert_same_request(parsed, frame)


@given(requests(batches()), st.data())
@settings(max_examples=300)
def test_what_the_kernel_takes_of_damaged_requests_the_codec_takes_as_well(
    case: tuple[int, ProduceRequest], data: st.DataObject
) -> None:
    version, request = case
    frame = _encoded(version, request)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(4, len(frame) - 1))
        change = data.draw(st.sampled_from(["set", "cut", "add"]))
        octet = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
        if change == "set":
            frame[at] = octet
        elif change == "cut" and len(frame) > 10:
            del frame[at]
        else:
            frame.insert(at, octet)
    for form in FORMS.values():
        parsed = form()
        if parsed.parse(frame, 4, len(frame)):
            _assert_same_request(parsed, frame)


@given(batches(), st.data())
@settings(max_examples=300)
def test_batches_that_are_damaged_and_sealed_again_are_judged_as_the_broker_does(raw: bytes, data: st.DataObject) -> None:
    damaged = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 2))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    magic = damaged[16]
    seal_batch(damaged)
    damaged[16] = magic
    request = ProduceRequest(
        acks=1, topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(records=damaged)])]
    )
    frame = _encoded(9, request)
    for form in FORMS.values():
        parsed = form()
        if parsed.parse(frame, 4, len(frame)):
            _assert_same_decision(parsed.batches[0])


@forms
def test_unusual_requests_are_left_to_the_codec(form: type[ProduceFrame]) -> None:
    batch = framed(packed_record(0, b"v"), 1, (0, 0))

    def request(**fields: Any) -> ProduceRequest:
        topics = [TopicProduceData(name="t", partition_data=[PartitionProduceData(records=batch)])]
        return ProduceRequest(**{"acks": -1, "topic_data": topics, **fields})

    two_batches = [TopicProduceData(name="t", partition_data=[PartitionProduceData(records=batch + batch)])]
    unusual = [
        request(transactional_id="t"),
        request(acks=2),
        request(topic_data=[]),
        request(topic_data=[TopicProduceData(name="t")]),
        request(topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(records=None)])]),
        request(topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(records=b"short")])]),
    ]
    for version in (3, 8, 9, 12):
        frame = _encoded(version, request())
        assert form().parse(frame, 4, len(frame))
        assert not form().parse(frame + b"\0", 4, len(frame) + 1)
        assert not form().parse(frame, 4, len(frame) + 1), "beyond the buffer"
        for each in unusual:
            frame = _encoded(version, each)
            assert not form().parse(frame, 4, len(frame))
        frame = _encoded(version, request(topic_data=two_batches))
        parsed = form()
        assert parsed.parse(frame, 4, len(frame))
        assert not parsed.batches[0].is_checked
    assert not form().parse(bytearray(b"\0\0\0\0\0\x03\0\x09"), 4, 8), "a Metadata request"


@forms
def test_small_batches_are_copies_and_large_ones_views(form: type[ProduceFrame]) -> None:
    for size in (COPIED_MAX - 200, COPIED_MAX):
        batch = framed(packed_record(0, bytes(size)), 1, (0, 0))
        frame = _encoded(9, ProduceRequest(topic_data=[TopicProduceData(partition_data=[PartitionProduceData(records=batch)])]))
        parsed = form()
        assert parsed.parse(frame, 4, len(frame))
        (produced,) = parsed.batches
        assert parsed.has_views == isinstance(produced.data, memoryview) == (size == COPIED_MAX)
        frame[-20] ^= 0xFF
        assert (bytes(produced.data) == batch) == (not parsed.has_views)


class Partition:
    start_offset = 11


outcomes = st.tuples(
    st.sampled_from([0, 0, 0, -1, 1 << 40]),
    st.sampled_from([-1, -1, 1_700_000_000_000]),
    st.none() | st.sampled_from(["", "why", "wärum " * 30]),
    st.sampled_from([7, 87]),
)


@given(requests(st.just(framed(packed_record(0, b"v"), 1, (0, 0)))), st.integers(0, 1 << 30), st.data())
def test_a_reply_has_the_bytes_that_the_codec_writes(
    case: tuple[int, ProduceRequest], throttle_ms: int, data: st.DataObject
) -> None:
    version, request = case
    frame = _encoded(version, request)
    told = [[data.draw(outcomes) for _ in topic.partition_data] for topic in request.topic_data]
    expected = _expected_reply(version, request, told, throttle_ms)
    for form in FORMS.values():
        parsed = form()
        assert parsed.parse(frame, 4, len(frame))
        parsed.throttle_time_ms = throttle_ms
        flat = [outcome for topic in told for outcome in topic]
        for batch, (base_offset, append_ms, message, code) in zip(parsed.batches, flat, strict=True):
            batch.partition = Partition()
            batch.log_append_time_ms = append_ms
            if message is None:
                batch.set_result(WriteResult(base_offset, duplicate=base_offset < 0))
            else:
                batch.set_exception(InvalidBatchError(message))
                batch.error_code, batch.error_message, batch.log_append_time_ms = code, message, -1
        assert parsed.settlements == 0  # type: ignore[attr-defined]
        parsed.queued()
        assert parsed.settlements == 1  # type: ignore[attr-defined]
        assert bytes(parsed.reply()) == expected
        assert parsed.has_errors == any(message is not None or offset < 0 for offset, _, message, _ in flat)


def _expected_reply(version: int, request: ProduceRequest, told: list[list[Any]], throttle_ms: int) -> bytes:
    response = ProduceResponse(throttle_time_ms=throttle_ms)
    for topic, outcomes_of_topic in zip(request.topic_data, told, strict=True):
        answered = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
        response.responses.append(answered)
        for asked, (base_offset, append_ms, message, code) in zip(topic.partition_data, outcomes_of_topic, strict=True):
            part = PartitionProduceResponse(index=asked.index, base_offset=-1, error_message=message)
            answered.partition_responses.append(part)
            if message is None:
                part.base_offset, part.log_append_time_ms, part.log_start_offset = base_offset, append_ms, Partition.start_offset
                part.error_code = 46 if base_offset < 0 else 0
            else:
                part.error_code = code
    return b"".join(encode_response(keys.PRODUCE, version, -7, response)[0])


@forms
def test_the_outcome_of_the_last_batch_settles_the_request_once(form: type[ProduceFrame]) -> None:
    batch = framed(packed_record(0, b"v"), 1, (0, 0))
    data = [PartitionProduceData(index=number, records=batch) for number in range(2)]
    frame = _encoded(9, ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=data)]))
    parsed = form()
    assert parsed.parse(frame, 4, len(frame))
    parsed.queued()
    first, second = parsed.batches
    for each in (first, second):
        each.partition = Partition()
    assert not first.done()
    first.set_result(WriteResult(3, duplicate=False))
    assert first.done()
    assert parsed.settlements == 0  # type: ignore[attr-defined]
    second.set_exception(InvalidBatchError("no"))
    assert parsed.settlements == 1  # type: ignore[attr-defined]
