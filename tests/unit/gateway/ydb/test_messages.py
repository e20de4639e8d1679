"""Messages of YDB in record batches and back: what a writer sends is what a reader gets, by the kernel and the long way round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import PenstockError
from penstock.gateway.ydb.plain_request import parse_plain_request
from penstock.gateway.ydb.protos import GZIP, RAW, ZSTD, Status, timestamp, topic
from penstock.gateway.ydb.read_responses import encode_responses
from penstock.gateway.ydb.stored_messages import Message, decode_messages
from penstock.gateway.ydb.write_acks import write_response
from penstock.gateway.ydb.written_batch import WriteSession, decompress_data, encode_batches
from penstock.kernels import ack_pack, message_pack, message_scan
from penstock.kernels.record_scan import FIELDS, scan_records
from penstock.queue import WriteResult, check_batch
from penstock.testing.batches import make_batch, make_keyed_batch
from tests.kernel_forms import uncompiled

Sent = topic.StreamWriteMessage.WriteRequest.MessageData
TIME_MS = 1_700_000_000_123


def _sent(seqno: int, data: bytes, time_ms: int = TIME_MS, **items: bytes) -> Any:
    made = Sent(seq_no=seqno, data=data, created_at=timestamp(time_ms))
    for name, value in items.items():
        made.metadata_items.add(key=name, value=value)
    return made


def _stored(messages: list[Any], *, writer: WriteSession | None = None, codec: int = RAW, base_offset: int = 0) -> bytes:
    who = writer or WriteSession.of("source", "source", {})
    made = bytearray()
    for batch in encode_batches(who, messages, [message.data for message in messages], codec):
        check_batch(batch.data, 1 << 30)
        made += base_offset.to_bytes(8, "big") + batch.data[8:]
        base_offset += batch.messages
    return bytes(made)


def _read(data: bytes, from_offset: int = 0) -> list[Message]:
    """What a reader gets, as it is decoded from the answers."""
    found: list[Message] = []
    for answer in encode_responses(7, data, from_offset, []):
        response = topic.StreamReadMessage.FromServer.FromString(answer.encoded).read_response
        assert response.bytes_size == answer.size
        (partition_data,) = response.partition_data
        assert partition_data.partition_session_id == 7
        for batch in partition_data.batches:
            assert batch.codec == RAW
            origin = batch.producer_id, tuple(sorted(batch.write_session_meta.items()))
            for one in batch.message_data:
                assert one.uncompressed_size == len(one.data)
                items = tuple((item.key, item.value) for item in one.metadata_items)
                time_ms = one.created_at.ToMilliseconds()
                found.append(Message(one.offset, one.seq_no, time_ms, one.data, one.message_group_id, origin, items))
    return found


@pytest.mark.parametrize("codec", [RAW, GZIP, ZSTD])
def test_plain_messages_come_back(codec: int) -> None:
    data = _stored(
        [_sent(number + 5, b"data %d" % number, TIME_MS + number) for number in range(300)], codec=codec, base_offset=40
    )
    found = _read(data, 50)
    assert [message.offset for message in found] == list(range(50, 340))
    assert found[0] == Message(50, 15, TIME_MS + 10, b"data 10", "source", ("source", ()), ())


def test_messages_with_more_to_them_come_back() -> None:
    writer = WriteSession.of("a source", "a group", {"host": "here", "file": "there"})
    found = _read(_stored([_sent(9, b"", color=b"\0red", __key=b"key"), _sent(11, b"bare")], writer=writer))
    origin = ("a source", (("file", "there"), ("host", "here")))
    assert found[0] == Message(0, 9, TIME_MS, b"", "a group", origin, (("__key", b"key"), ("color", b"\0red")))
    assert found[1] == Message(1, 11, TIME_MS, b"bare", "a group", origin, ())


def test_records_of_kafka_are_numbered() -> None:
    plain = make_keyed_batch([(b"key", b"value"), (None, None)], timestamps=[TIME_MS])
    assert _read(plain) == [
        Message(0, 1, TIME_MS, b"value", "", ("", ()), (("__key", b"key"),)),
        Message(1, 2, TIME_MS, b"", "", ("", ()), ()),
    ]
    name = "kafka-77-3"
    idempotent = make_batch([b"one", b"two"], timestamp=TIME_MS, producer_id=77, producer_epoch=3, base_sequence=10)
    assert [(message.seqno, message.origin[0], message.group) for message in _read(idempotent)] == [
        (11, name, name),
        (12, name, name),
    ]
    wrapping = make_batch([b"one", b"two"], timestamp=TIME_MS, producer_id=77, producer_epoch=3, base_sequence=(1 << 31) - 1)
    assert [message.seqno for message in _read(wrapping)] == [1 << 31, 1]


def test_a_large_batch_is_answered_in_parts() -> None:
    data = _stored([_sent(number + 1, bytes(600_000)) for number in range(10)]) + make_keyed_batch(
        [(bytes(3 << 20), b"1"), (bytes(3 << 20), b"2"), (b"", b"3")], timestamps=[TIME_MS]
    )
    sizes = [len(answer.encoded) for answer in encode_responses(1, data, 0, [])]
    assert len(sizes) == 4
    assert max(sizes) < 5 << 20


@given(
    st.lists(
        st.tuples(st.integers(1, 1000), st.binary(max_size=40), st.integers(0, 1 << 41), st.none() | st.binary(max_size=20)),
        min_size=1,
        max_size=20,
    ),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20),
)
def test_whatever_is_written_is_read(rows: list[tuple[int, bytes, int, bytes | None]], producer: str) -> None:
    sent, seqno = [], 0
    for step, data, time_ms, key in rows:
        seqno += step
        sent.append(_sent(seqno, data, time_ms, **({} if key is None else {"__key": key})))
    found = _read(_stored(sent, writer=WriteSession.of(producer, "", {})))
    assert [message.seqno for message in found] == [message.seq_no for message in sent]
    assert [message.data for message in found] == [message.data for message in sent]
    assert [message.time_ms for message in found] == [row[2] for row in rows]
    assert [dict(message.items).get("__key") for message in found] == [row[3] for row in rows]
    assert {message.origin for message in found} == {(producer, ())}
    stored = _stored(sent, writer=WriteSession.of(producer, "", {}))
    assert decode_messages(memoryview(stored), 0) == found


def test_the_kernel_does_the_same_uncompiled() -> None:
    records = _stored([_sent(number + 1, b"data" * number, __key=b"k" * number) for number in range(5)])[61:]
    table = np.empty((5, FIELDS), np.int64)
    scan_records(records, table)
    prefix = b"\x04\x18ydb.producer\x0csource\x12ydb.seqno"
    made: list[bytes] = []
    for module in (message_pack, uncompiled("message_pack")):
        out, told = np.zeros(2000, np.uint8).data, np.zeros(4, np.int64)
        used = module.pack_messages(
            memoryview(records),
            table,
            1,
            out,
            told,
            prefix=prefix,
            first_seqno=-1,
            base=np.array([100, TIME_MS, 1, 0], np.int64),
            group=b"source",
            key_item=b"\x0a\x05__key\x12",
            limit=20,
        )
        made.append(bytes(out[:used]))
        assert told.tolist() == [3, 2, 15, 0]
    assert made[0] == made[1]


def _request(messages: list[Any], **fields: Any) -> bytes:
    request = {"messages": messages, "codec": RAW, **fields}
    encoded: bytes = topic.StreamWriteMessage.FromClient(write_request=request).SerializeToString()
    return encoded


@given(
    st.lists(st.tuples(st.integers(1, 1 << 40), st.binary(max_size=300), st.integers(0, 1 << 41)), min_size=1, max_size=20),
    st.integers(0, 25),
    st.sampled_from(
        [WriteSession.of("source", "", {}), WriteSession.of("", "", {}), WriteSession.of("a" * 100, "group", {"host": "here"})]
    ),
)
def test_a_plain_request_gives_the_same_batches_as_a_decoded_one(
    rows: list[tuple[int, bytes, int]], skipped: int, writer: WriteSession
) -> None:
    sent = [_sent(*row) for row in rows]
    found = parse_plain_request(_request(sent))
    assert found is not None
    assert found.seqnos.tolist() == [row[0] for row in rows]
    new = sent[skipped:]
    assert found.size(skipped) == sum(len(message.data) for message in new)
    assert list(found.batches(writer, skipped)) == list(encode_batches(writer, new, [message.data for message in new], RAW))


def test_a_large_plain_request_is_several_batches() -> None:
    found = parse_plain_request(_request([_sent(number + 1, bytes(300_000)) for number in range(10)]))
    assert found is not None
    made = list(found.batches(WriteSession.of("source", "", {}), 0))
    assert [batch.messages for batch in made] == [3, 3, 3, 1]
    for batch in made:
        check_batch(batch.data, 1 << 30)


@pytest.mark.parametrize("size", [1, 50, 400])
def test_no_batch_is_larger_than_the_topic_takes(size: int) -> None:
    sent = [_sent(number + 1, b"d" * size) for number in range(300)]
    writer = WriteSession.of("a source of some length", "group", {})
    found = parse_plain_request(_request(sent))
    assert found is not None
    with_items = [_sent(number + 1, b"d" * size, color=b"c" * 30) for number in range(300)]
    for made in (
        list(found.batches(writer, 0, 4096)),
        list(encode_batches(writer, sent, [message.data for message in sent], RAW, 4096)),
        list(encode_batches(writer, with_items, [message.data for message in with_items], RAW, 4096)),
    ):
        assert max(len(batch.data) for batch in made) <= 4096
        assert sum(batch.messages for batch in made) == 300


def test_what_is_not_plain_is_left_to_others() -> None:
    assert parse_plain_request(_request([_sent(1, b"data", color=b"red")])) is None
    assert parse_plain_request(_request([_sent(1, b"data")], codec=GZIP)) is None
    assert parse_plain_request(_request([_sent(1, b"data")], tx={"id": "some"})) is None
    assert parse_plain_request(_request([])) is None
    assert parse_plain_request(_request([Sent(seq_no=1, partition_id=3)])) is None
    assert parse_plain_request(_request([_sent(-1, b"data")])) is None
    assert parse_plain_request(_request([Sent(seq_no=1, created_at=timestamp(-5000))])) is None
    init = topic.StreamWriteMessage.FromClient(init_request={"path": "path"})
    assert parse_plain_request(init.SerializeToString()) is None


@given(st.binary(max_size=60), st.integers(0, 200))
def test_no_bytes_break_the_scan(noise: bytes, cut: int) -> None:
    parse_plain_request(noise)
    parse_plain_request(b"\x12" + bytes([len(noise)]) + noise)
    whole = bytearray(_request([_sent(5, b"data"), _sent(6, b"more data")]))
    whole[min(cut, len(whole) - 1)] ^= 0xFF
    found = parse_plain_request(bytes(whole))
    if found is not None:
        list(found.batches(WriteSession.of("source", "", {}), 0))


def test_the_scan_does_the_same_uncompiled() -> None:
    raw = _request([_sent(number * 999 + 1, b"data" * number, TIME_MS + number) for number in range(50)])
    at = len(raw) - topic.StreamWriteMessage.FromClient.FromString(raw).write_request.ByteSize()
    made: list[tuple[object, ...]] = []
    for module in (message_scan, uncompiled("message_scan")):
        count, codec = module.count_messages(raw, at)
        table, out = np.empty((count, message_scan.ROW_FIELDS), np.int64), np.zeros(20_000, np.uint8).data
        assert module.scan_messages(raw, at, table)
        used = module.pack_records(memoryview(raw), table, out, headers=b"before", headers_after=b"after")
        made.append((count, codec, table.tolist(), bytes(out[:used])))
    assert made[0] == made[1]


def test_what_is_not_compressed_as_it_claims_is_refused() -> None:
    with pytest.raises(PenstockError, match="is not gzip"):
        decompress_data([_sent(1, b"plain")], GZIP)
    with pytest.raises(PenstockError, match="is not zstd"):
        decompress_data([_sent(1, b"plain")], ZSTD)
    with pytest.raises(PenstockError, match="codec 3 is not supported"):
        decompress_data([_sent(1, b"plain")], 3)


@given(
    st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=30),
    st.integers(0, 5),
    st.lists(st.tuples(st.integers(1, 8), st.none() | st.integers(0, (1 << 63) - 31)), max_size=3),
)
def test_each_message_of_a_request_is_acknowledged(
    seqnos: list[int], skipped: int, batches: list[tuple[int, int | None]]
) -> None:
    results = [(count, WriteResult(offset or 0, offset is None)) for count, offset in batches]
    raw = write_response(np.array(seqnos, np.int64), skipped, results, partition=3, waited_s=1.5)
    answer = topic.StreamWriteMessage.FromServer.FromString(raw)
    response = answer.write_response
    assert (answer.status, response.partition_id) == (Status.SUCCESS, 3)
    assert response.write_statistics.persisting_time.ToMilliseconds() == 1500
    expected: list[object] = ["skipped"] * skipped
    for count, offset in batches:
        expected += ["skipped"] * count if offset is None else range(offset, offset + count)
    expected += ["written_in_tx"] * len(seqnos)
    told = [(ack.seq_no, _outcome(ack)) for ack in response.acks]
    assert told == list(zip(seqnos, expected, strict=False))


def _outcome(ack: Any) -> object:
    kind = ack.WhichOneof("message_write_status")
    return ack.written.offset if kind == "written" else kind


def test_acks_are_the_same_uncompiled() -> None:
    seqnos = np.array([1, 200, 1 << 62], np.uint64)
    for base_offset in (-1, 0, 1 << 40):
        made: list[bytes] = []
        for module in (ack_pack, uncompiled("ack_pack")):
            out = np.zeros(len(seqnos) * ack_pack.ACK_BYTES_MAX, np.uint8).data
            made.append(bytes(out[: module.pack_acks(seqnos, base_offset, b"rest", out)]))
        assert made[0] == made[1]
