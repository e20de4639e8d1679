"""Record batches of the client: written, read back, and found damaged."""

from __future__ import annotations

import gzip
import struct
from contextlib import suppress

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.record_batch import Reader, Record, Source, encode_batch
from penstock.core.checksum import crc32c
from penstock.core.errors import CorruptionError
from penstock.core.key_hash import murmur2
from penstock.core.record_compression import decompress
from penstock.queue import check_batch
from penstock.testing.batches import make_batch, make_marker, values_of

_OCTETS = st.none() | st.binary(max_size=200)
_RECORDS = st.builds(
    Record,
    st.just(0),
    st.integers(0, 1 << 42),
    _OCTETS,
    _OCTETS,
    st.lists(st.tuples(st.text(max_size=8), _OCTETS), max_size=3).map(tuple),
)


def _compressed(batch: bytes, codec: int, body: bytes) -> bytes:
    """The batch with its records replaced by these, under another codec."""
    whole = bytearray(batch[:61] + body)
    whole[8:12] = struct.pack(">i", len(whole) - 12)
    whole[21:23] = struct.pack(">h", codec)
    whole[17:21] = struct.pack(">I", crc32c(bytes(whole[21:])))
    return bytes(whole)


@given(st.lists(_RECORDS, min_size=1, max_size=20))
def test_what_is_written_reads_back(records: list[Record]) -> None:
    batch = encode_batch(records, Source(7, 0), 5)
    check_batch(batch, 1 << 20)
    read = list(Reader(0).read(memoryview(batch)))
    assert read == [record._replace(offset=offset) for offset, record in enumerate(records)]


def test_a_batch_is_what_the_broker_takes_it_for() -> None:
    batch = encode_batch([Record(0, 5, b"k", b"one"), Record(0, 9, None, b"two")], Source(7, 1), 3)
    checked = check_batch(batch, 1 << 20)
    assert (checked.producer_id, checked.producer_epoch, checked.base_sequence, checked.messages) == (7, 1, 3, 2)
    assert (checked.base_timestamp, checked.max_timestamp) == (5, 9)
    assert values_of(batch) == [(0, b"one"), (1, b"two")]


def test_reading_begins_at_the_position_and_moves_it() -> None:
    reader = Reader(11)
    read = list(reader.read(memoryview(make_batch([b"a", b"b", b"c"], base_offset=10))))
    assert [(record.offset, record.value) for record in read] == [(11, b"b"), (12, b"c")]
    assert reader.position == 13


def test_a_batch_cut_off_is_left_for_later() -> None:
    whole = make_batch([b"a"], base_offset=0)
    reader = Reader(0)
    assert len(list(reader.read(memoryview(whole + make_batch([b"b"], base_offset=1)[:-1])))) == 1
    assert reader.position == 1


def test_a_damaged_batch_is_never_shown() -> None:
    batch = bytearray(make_batch([b"precious"]))
    batch[-3] ^= 1
    with pytest.raises(CorruptionError, match="is corrupt"):
        list(Reader(0).read(memoryview(bytes(batch))))


def test_aborted_messages_and_markers_are_skipped() -> None:
    transactional = 0x10
    stream = (
        make_batch([b"dropped"], attributes=transactional, producer_id=1, producer_epoch=0, base_offset=0)
        + make_batch([b"other"], attributes=transactional, producer_id=2, producer_epoch=0, base_offset=1)
        + _at(make_marker(commit=False, producer_id=1), 2)
        + make_batch([b"later"], attributes=transactional, producer_id=1, producer_epoch=0, base_offset=3)
    )
    reader = Reader(0)
    assert [record.value for record in reader.read(memoryview(stream), [(1, 0)])] == [b"other", b"later"]
    assert reader.position == 4


def _at(batch: bytes, offset: int) -> bytes:
    return struct.pack(">q", offset) + batch[8:]


def test_a_gzip_batch_is_read() -> None:
    batch = make_batch([b"x" * 100])
    squeezed = _compressed(batch, 1, gzip.compress(batch[61:]))
    assert [record.value for record in Reader(0).read(memoryview(squeezed))] == [b"x" * 100]


@pytest.mark.parametrize(
    ("codec", "data", "plain"),
    [
        (2, b"\x0b\x28hello world", b"hello world"),
        (2, b"\x0a\x00a\x15\x01", b"a" * 10),
        (2, b"\x82SNAPPY\x00\0\0\0\1\0\0\0\1" + b"\0\0\0\x05\x0a\x00a\x15\x01" * 2, b"a" * 20),
        (3, b"\x04\x22\x4d\x18\x60\x40\x82" + b"\x03\0\0\x80abc" + b"\0\0\0\0", b"abc"),
        (3, bytes(cramjam.lz4.compress(b"a" * 300)), b"a" * 300),
        (4, bytes(cramjam.zstd.compress(b"a" * 300)), b"a" * 300),
    ],
)
def test_other_codecs_are_read(codec: int, data: bytes, plain: bytes) -> None:
    assert bytes(decompress(codec, memoryview(data))) == plain


@given(st.integers(1, 7), st.binary(max_size=200))
def test_garbage_does_not_decompress_to_an_accident(codec: int, data: bytes) -> None:
    with suppress(ValueError):
        decompress(codec, memoryview(data))


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_are_hashed_as_in_kafka(key: bytes, hashed: int) -> None:
    """The values of Kafka's own test of its hash."""
    assert murmur2(key) == hashed & 0xFFFFFFFF
