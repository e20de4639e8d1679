"""Fetch requests taken apart and answered by the kernel, compiled and as plain Python, against the codecs of the protocol: the
same partitions, the same bytes."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kafka.protocol import Splice, decode_request, decode_response, encode_request, encode_response, keys
from penstock.kafka.protocol.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from penstock.kernels import fetch_frame
from penstock.kernels.fetch_frame import FetchFrame
from penstock.kernels.fetched_partition import FetchedPartition
from tests.kernel_forms import uncompiled

FORMS: dict[str, Any] = {"as installed": fetch_frame, "uncompiled": uncompiled("fetch_frame")}
VERSIONS = range(4, 19)

int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
names = st.sampled_from(["t", "topic-ü", "x" * 200])
ids = st.binary(min_size=16, max_size=16).filter(any)


@st.composite
def topics(draw: st.DrawFn, version: int, kind: type[FetchTopic | ForgottenTopic], item: Any) -> Any:
    """Topics of a request, by name or id."""
    partitions = st.lists(item, max_size=3)
    if version >= 13:
        return [kind(topic_id=ref, partitions=draw(partitions)) for ref in draw(st.lists(ids, max_size=3, unique=True))]
    return [kind(topic=ref, partitions=draw(partitions)) for ref in draw(st.lists(names, max_size=3, unique=True))]


@st.composite
def requests(draw: st.DrawFn) -> tuple[int, FetchRequest]:
    """A version, and a request of a consumer."""
    version = draw(st.sampled_from(VERSIONS))
    asked = st.builds(
        FetchPartition,
        partition=int32,
        current_leader_epoch=int32 if version >= 9 else st.just(-1),
        fetch_offset=int64,
        last_fetched_epoch=int32 if version >= 12 else st.just(-1),
        log_start_offset=int64,
        partition_max_bytes=int32,
    )
    request = FetchRequest(
        max_wait_ms=draw(int32),
        min_bytes=draw(int32),
        max_bytes=draw(int32),
        isolation_level=draw(st.sampled_from([0, 1, 2])),
        session_id=draw(int32) if version >= 7 else 0,
        session_epoch=draw(int32) if version >= 7 else -1,
        topics=draw(topics(version, FetchTopic, asked)),
        forgotten_topics_data=draw(topics(version, ForgottenTopic, int32)) if version >= 7 else [],
        rack_id=draw(st.sampled_from(["", "rack-ü"])),
    )
    return version, request


def _encoded(version: int, request: FetchRequest, client_id: str | None = "client-ü") -> bytearray:
    return bytearray(b"".join(encode_request(keys.FETCH, version, -7, client_id, request)[0]))


def _assert_same_request(parsed: FetchFrame, frame: bytearray) -> None:
    request = decode_request(bytes(frame[4:]))
    body = request.body
    assert isinstance(body, FetchRequest)
    assert (parsed.version, parsed.correlation_id) == (request.api_version, request.correlation_id)
    assert parsed.client_id == request.client_id
    assert (parsed.max_wait_ms, parsed.min_bytes, parsed.max_bytes) == (body.max_wait_ms, body.min_bytes, body.max_bytes)
    assert parsed.is_committed == (body.isolation_level == 1)
    assert (parsed.session_id, parsed.session_epoch) == (body.session_id, body.session_epoch)
    by_id = parsed.version >= 13
    assert [
        (part.topic, part.index, part.offset, part.size_max, part.leader_epoch, part.last_epoch) for part in parsed.parts
    ] == [
        (
            topic.topic_id if by_id else topic.topic,
            asked.partition,
            asked.fetch_offset,
            asked.partition_max_bytes,
            asked.current_leader_epoch,
            asked.last_fetched_epoch,
        )
        for topic in body.topics
        for asked in topic.partitions
    ]
    assert parsed.forgotten == [
        (topic.topic_id if by_id else topic.topic, number) for topic in body.forgotten_topics_data for number in topic.partitions
    ]


@given(requests(), st.sampled_from([None, "", "rdkafka", "client-ü"]))
def test_a_request_is_taken_apart_as_the_codec_does(case: tuple[int, FetchRequest], client_id: str | None) -> None:
    frame = _encoded(*case, client_id)
    for form in FORMS.values():
        parsed = form.FetchFrame()
        assert parsed.parse(frame, 4, len(frame))
        _assert_same_request(parsed, frame)


@given(requests(), st.data())
@settings(max_examples=300)
def test_what_the_kernel_takes_of_damaged_requests_the_codec_takes_as_well(
    case: tuple[int, FetchRequest], data: st.DataObject
) -> None:
    frame = _encoded(*case)
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
        parsed = form.FetchFrame()
        if parsed.parse(frame, 4, len(frame)):
            _assert_same_request(parsed, frame)


def test_unusual_requests_are_left_to_the_codec() -> None:
    asked = [FetchTopic(topic="t", topic_id=b"i" * 16, partitions=[FetchPartition(replica_directory_id=b"d" * 16)])]
    for form in FORMS.values():
        for version in (4, 11, 12, 14, 15, 18):
            frame = _encoded(version, FetchRequest())
            assert form.FetchFrame().parse(frame, 4, len(frame))
            assert not form.FetchFrame().parse(frame + b"\0", 4, len(frame) + 1)
            assert not form.FetchFrame().parse(frame, 4, len(frame) + 1), "beyond the buffer"
            follower = FetchRequest(replica_id=3, replica_state=ReplicaState(replica_id=3) if version >= 15 else None)
            frame = _encoded(version, follower)
            assert not form.FetchFrame().parse(frame, 4, len(frame))
        frame = _encoded(17, FetchRequest(topics=asked))
        assert not form.FetchFrame().parse(frame, 4, len(frame)), "a tagged field"


@st.composite
def outcomes(draw: st.DrawFn) -> tuple[Any, ...]:
    """What a partition holds: an error, its offsets, aborted transactions, a diverging epoch, and records."""
    high = draw(st.integers(5, 1 << 40))
    aborted = draw(st.none() | st.lists(st.tuples(st.just(0), int64, int64), max_size=2))
    diverging = draw(st.none() | st.tuples(st.integers(0, 9), st.integers(0, 1 << 40)))
    records = draw(st.sampled_from([(), (b"r" * 61,), (b"a" * 100, memoryview(b"b" * 300)), (bytes(70_000),)]))
    return draw(st.sampled_from([0, 0, 0, 3])), high, aborted, diverging, records


class Tablet:
    stop_cause = None


class Transactions:
    open: tuple[()] = ()


class Held:
    """A partition as the kernel sees it, and the route to it."""

    start_offset = 2
    tablet = Tablet()
    transactions = Transactions()
    shows_own_headers = False

    def __init__(self, end_offset: int) -> None:
        self.end_offset = end_offset
        self.partition = self


@given(requests(), st.integers(0, (1 << 31) - 1), st.integers(0, (1 << 31) - 1), st.data())
def test_a_reply_has_the_bytes_that_the_codec_writes(
    case: tuple[int, FetchRequest], session_id: int, throttle_ms: int, data: st.DataObject
) -> None:
    version, request = case
    frame = _encoded(version, request)
    told = [[data.draw(outcomes()) for _ in topic.partitions] for topic in request.topics]
    flat = [outcome for topic in told for outcome in topic]
    expected = _expected_reply(version, request, told, session_id, throttle_ms)
    for form in FORMS.values():
        parsed = form.FetchFrame()
        assert parsed.parse(frame, 4, len(frame))
        for part, (code, high, aborted, diverging, records) in zip(parsed.parts, flat, strict=True):
            part.look(Held(high), False)
            part.aborted, part.diverging = aborted, diverging
            if code:
                part.fail(code)
            else:
                part.fill(records, sum(map(len, records)))
        parsed.sum_up()
        assert parsed.is_refused == any(code or diverging is not None for code, _, _, diverging, _ in flat)
        buffers, size = parsed.reply(session_id=session_id, throttle_time_ms=throttle_ms)
        assert b"".join(buffers) == expected
        assert size == len(expected)


def _expected_reply(version: int, request: FetchRequest, told: list[list[Any]], session_id: int, throttle_ms: int) -> bytes:
    response = FetchResponse(throttle_time_ms=throttle_ms, session_id=session_id)
    for topic, outcomes_of_topic in zip(request.topics, told, strict=True):
        if not topic.partitions:
            continue
        answered = FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id)
        response.responses.append(answered)
        for asked, (code, high, aborted, diverging, records) in zip(topic.partitions, outcomes_of_topic, strict=True):
            data = PartitionData(partition_index=asked.partition, error_code=code, high_watermark=high, last_stable_offset=high)
            data.log_start_offset = Held.start_offset
            data.records = b"" if code else Splice(records, sum(map(len, records)))
            data.aborted_transactions = None
            if aborted is not None:
                data.aborted_transactions = [AbortedTransaction(producer_id=pid, first_offset=at) for _, pid, at in aborted]
            if diverging is not None:
                data.diverging_epoch = EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
            answered.partitions.append(data)
    return b"".join(encode_response(keys.FETCH, version, -7, response)[0])


def test_an_incremental_reply_names_only_what_the_client_does_not_know() -> None:
    for form in FORMS.values():
        kept = [FetchedPartition("t", number) for number in range(3)]
        for highs, codes, named in (
            ([5, 5, 5], {}, [0, 1, 2]),
            ([5, 6, 5], {}, [1]),
            ([5, 6, 5], {2: 3}, [2]),
            ([5, 6, 5], {}, [2]),
            ([5, 6, 5], {}, []),
        ):
            frame = form.FetchFrame()
            frame.begin()
            frame.version, frame.correlation_id = 12, 1
            frame.parts = [part.copy() for part in kept]
            for part, high in zip(frame.parts, highs, strict=True):
                part.look(Held(high), False)
                if code := codes.get(part.index):
                    part.fail(code)
            buffers, _ = frame.reply(7, True, True)
            _, response = decode_response(keys.FETCH, 12, b"".join(buffers)[4:])
            assert isinstance(response, FetchResponse)
            assert [data.partition_index for topic in response.responses for data in topic.partitions] == named
