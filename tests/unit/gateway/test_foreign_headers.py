"""Headers that mean something to a gateway, in messages that another has written: shown, and believed by no one."""

from __future__ import annotations

import json

import pytest

from penstock.broker.streams import UnknownMessageError
from penstock.broker.streams.records import messages_of as stream_messages_of
from penstock.broker.weights import pack_weights, weights_of
from penstock.core.checksum import crc32c
from penstock.core.record_format import CRC_FROM, FROM_STREAMS, FROM_YDB, FROM_YT, Header, framed, packed_record
from penstock.gateway.kafka.own_headers import without_own_headers
from penstock.gateway.ydb.read_responses import encode_responses
from penstock.gateway.ydb.stored_messages import decode_messages
from penstock.gateway.yt.row_batch import read_row_batch
from penstock.queue import Partition
from penstock.queue.origins import NONE_YET, Origins
from penstock.server.http.payload_view import shown_message, shown_octets
from penstock.server.http.stored_records import Record
from penstock.tablet import DeleteRange, Request
from penstock.testing.batches import make_batch
from tests.sim_streams import SimStreams, on_streams
from tests.sim_tablet import SimNode, content, on_node

SEQNOS = [b"9" * 19, b"9" * 40, b"1" * 5000, b"-1", b"", b"1.5", "²".encode(), b"\xff", b"0"]


def _batch(headers: list[Header], *, value: bytes = b"value", key: bytes | None = None, attributes: int = 0) -> bytes:
    return framed(packed_record(0, value, key=key, headers=headers), 1, (5, 5), attributes=attributes)


@pytest.mark.parametrize("seqno", SEQNOS)
def test_no_seqno_keeps_a_reader_of_ydb_from_a_message(seqno: bytes) -> None:
    for attributes in (0, FROM_YDB):
        raw = _batch([(b"ydb.producer", b"someone"), (b"ydb.seqno", seqno)], attributes=attributes)
        (message,) = decode_messages(memoryview(raw), 0)
        assert 0 < message.seqno < 1 << 63
        assert message.data == b"value"
        assert len(list(encode_responses(1, raw, 0, []))) == 1


def test_a_producer_of_kafka_cannot_write_as_a_producer_of_ydb() -> None:
    headers: list[Header] = [(b"ydb.producer", b"bank"), (b"ydb.seqno", b"7"), (b"ydb.session.host", b"vault")]
    (message,) = decode_messages(memoryview(_batch(headers)), 0)
    assert (message.origin, message.group, message.seqno) == (("", ()), "", 1)
    assert message.items == (
        ("kafka.header.ydb.producer", b"bank"),
        ("kafka.header.ydb.seqno", b"7"),
        ("kafka.header.ydb.session.host", b"vault"),
    )
    (own,) = decode_messages(memoryview(_batch(headers, attributes=FROM_YDB)), 0)
    assert (own.origin, own.seqno) == (("bank", (("host", "vault"),)), 7)


def test_a_header_is_not_taken_for_the_key_of_a_message() -> None:
    raw = _batch([(b"__key", b"forged"), (b"kafka.key", b"forged")], key=b"real")
    assert decode_messages(memoryview(raw), 0)[0].items == (
        ("__key", b"real"),
        ("kafka.header.__key", b"forged"),
        ("kafka.key", b"forged"),
    )
    (message,) = stream_messages_of(memoryview(raw), 0, 1)
    assert message.headers == {"kafka.key": "real", "kafka.header.kafka.key": "forged", "__key": "forged"}


@pytest.mark.parametrize(
    "weights", [b"", b"\1", b"\1" * 8, b"\2" + bytes(12), b"\1" + b"\x7f" * 12, b"\1" + bytes(9), b"\xff" * 21]
)
def test_weights_that_are_none_are_no_weights(weights: bytes) -> None:
    for attributes in (0, FROM_YT):
        raw = _batch([(b"penstock.weights", weights)], attributes=attributes)
        assert weights_of(raw) is None
        batch = read_row_batch(raw)
        assert batch is not None
        assert batch.weights is None


def test_only_the_gateway_of_yt_says_what_rows_weigh() -> None:
    headers: list[Header] = [(b"penstock.weights", pack_weights(1 << 40, [3]))]
    assert weights_of(_batch(headers)) is None
    assert weights_of(_batch(headers, attributes=FROM_STREAMS)) is None
    found = weights_of(_batch(headers, attributes=FROM_YT))
    assert found is not None
    assert found.after == (1 << 40) + 3


@pytest.mark.parametrize("time_ms", [(1 << 63) - 1, -(1 << 63), 0])
def test_a_time_that_no_clock_shows_does_not_keep_rows_from_a_reader(time_ms: int) -> None:
    batch = read_row_batch(framed(packed_record(0, b"{}"), 1, (time_ms, time_ms)))
    assert batch is not None
    assert 0 <= batch.timestamp < 1 << 64


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("origin", [0, FROM_YDB, FROM_YT, FROM_STREAMS])
def test_a_batch_that_compaction_has_emptied_keeps_no_reader_from_what_follows(codec: int, origin: int) -> None:
    emptied = bytearray(framed(b"", 1, (5, 5), attributes=origin | codec))
    emptied[57:61] = bytes(4)
    emptied[17:21] = crc32c(memoryview(emptied)[CRC_FROM:]).to_bytes(4, "big")
    assert list(encode_responses(1, bytes(emptied), 0, [])) == []
    assert decode_messages(memoryview(emptied), 0) == []
    assert list(stream_messages_of(memoryview(emptied), 0, 1)) == []
    assert weights_of(emptied) is None
    batch = read_row_batch(emptied)
    assert batch is not None
    assert batch.offsets(batch.from_offset(0, 10)) == []
    assert without_own_headers(emptied) == (emptied,)


def _reference(name: str) -> tuple[bytes, list[Header]]:
    """What a message with a payload elsewhere looks like, value and headers."""
    fields = {"object_name": name, "size": "3000", "crc32c": "00000000"}
    return json.dumps(fields).encode(), [(f"penstock.{field}".encode(), text.encode()) for field, text in fields.items()]


def test_a_message_of_kafka_gives_no_payload_away() -> None:
    async def scenario(host: SimStreams) -> None:
        payload = content(3000)
        secret = await host.do(host.streams.publish("secret", payload))
        await host.publish("open", b"first")
        topic = host.broker.catalog.topic("open")
        for name in (secret.object_name, "open/" + secret.object_name.rpartition("/")[2], "no id", "\ud7ff" * 50):
            value, headers = _reference(name)
            await host.do(host.broker.produce(topic, 0, _batch(headers, value=value)))
            # A value that says nothing of a payload is data, whatever the headers say.
            await host.do(host.broker.produce(topic, 0, _batch(headers)))
        for message in (await host.read("open"))[1:]:
            assert message.payload is None
            assert message.object_name == f"open/{message.offset}"
            assert await host.payload(message.sequence) == message.data
        assert await host.payload(secret.sequence) == payload

    on_streams(scenario)


def test_a_payload_is_given_for_the_message_that_the_store_says() -> None:
    async def scenario(host: SimStreams) -> None:
        payload = content(3000)
        secret = await host.do(host.streams.publish("secret", payload))
        await host.publish("open", b"first")
        value, headers = _reference(secret.object_name)
        # As an older Penstock could have stored it, where nothing but the store knows whose a payload is.
        partition = host.broker.partition(host.broker.catalog.topic("open"), 0)
        await host.do(partition.write(_batch(headers, value=value, attributes=FROM_STREAMS)))
        forged = (await host.read("open"))[-1]
        assert forged.payload is not None
        with pytest.raises(UnknownMessageError, match="no payload of message"):
            await host.payload(forged.sequence)
        assert await host.payload(secret.sequence) == payload

    on_streams(scenario)


@pytest.mark.parametrize("size", ["9" * 5000, "²", "-1", ""])
def test_the_console_shows_a_message_with_any_size(size: str) -> None:
    headers = (("penstock.object_name", b"a/b"), ("penstock.size", size.encode()), ("penstock.crc32c", b"\xff"))
    record = Record(0, 0, 0, False, None, b"value", headers, 9)
    assert shown_message(record, shown_octets(None), shown_octets(b"value")).payload is None


def test_what_was_written_before_batches_were_marked_is_told_apart_after_restarts() -> None:
    async def scenario(node: SimNode) -> None:
        partition: Partition = await (await node.queue(1)).add_partition(0)
        await partition.write(make_batch([b"a", b"b"]))
        await partition.make_keys()
        # As an older Penstock has left it.
        await partition.tablet.execute(Request((DeleteRange(b"g", b"h"),)))
        partition = (await node.queue(2)).partition(0)
        assert partition.origins == Origins(2, NONE_YET)
        await partition.write(make_batch([b"c"]))
        await partition.write(make_batch([b"d"], attributes=FROM_YDB))
        await partition.write(make_batch([b"e"], attributes=FROM_YT))
        assert partition.origins == Origins(2, 3)
        assert (await node.queue(3)).partition(0).origins == Origins(2, 3)

    on_node(scenario)


def test_a_new_partition_is_marked_from_its_first_message_on() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await (await node.queue(1)).add_partition(0)
        await partition.write(make_batch([b"a"]))
        assert (await node.queue(2)).partition(0).origins == Origins(0, NONE_YET)

    on_node(scenario)
