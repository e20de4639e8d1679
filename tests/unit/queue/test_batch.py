"""Checking record batches: what can be stored, and every way in which bytes are not that."""

from __future__ import annotations

from struct import pack, pack_into

import pytest

from penstock.core.checksum import crc32c
from penstock.queue import BatchTooLargeError, CorruptBatchError, InvalidBatchError, check_batch, split_batches
from penstock.queue.batch import is_commit_marker, max_timestamp_at, span_at
from penstock.queue.partition_append import PartitionAppend
from penstock.testing.batches import make_batch, make_marker, values_of

ANY = 1 << 30


def _changed(batch: bytes, at: int, layout: str, value: int) -> bytes:
    """A batch with one field changed and its checksum put right."""
    raw = bytearray(batch)
    pack_into(layout, raw, at, value)
    pack_into(">I", raw, 17, crc32c(bytes(raw[21:])))
    return bytes(raw)


def test_the_header_of_a_sound_batch_is_read() -> None:
    raw = make_batch([b"a", b"b"], timestamp=77, producer_id=5, producer_epoch=2, base_sequence=9)
    batch = check_batch(raw, len(raw))
    assert (batch.messages, batch.max_timestamp, batch.base_timestamp) == (2, 77, 77)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (5, 2, 9)
    assert not batch.is_transactional
    assert not batch.is_control
    assert batch.data == raw


@pytest.mark.parametrize("raw", [b"", b"x", b"garbage " * 7, make_batch([b"v"])[:60]])
def test_bytes_too_few_for_a_header_are_refused(raw: bytes) -> None:
    with pytest.raises(InvalidBatchError, match="no record batch"):
        check_batch(raw, ANY)


def test_garbage_of_any_length_is_refused() -> None:
    for length in (61, 62, 100, 5000):
        with pytest.raises(InvalidBatchError):
            check_batch(bytes(range(256))[:length] * (length // 256 + 1), ANY)
        with pytest.raises(InvalidBatchError):
            check_batch(bytes(length), ANY)


@pytest.mark.parametrize("at", [21, 30, 60, 61, 70])
def test_a_damaged_byte_is_found_by_the_checksum(at: int) -> None:
    raw = bytearray(make_batch([b"some value of some length"]))
    raw[at] ^= 0x40
    with pytest.raises(CorruptBatchError):
        check_batch(raw, ANY)


def test_a_wrong_checksum_is_found() -> None:
    raw = bytearray(make_batch([b"value"]))
    raw[20] ^= 1
    with pytest.raises(CorruptBatchError, match="checksum"):
        check_batch(raw, ANY)


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_another_version_is_refused(magic: int) -> None:
    raw = bytearray(make_batch([b"value"]))
    pack_into(">b", raw, 16, magic)
    with pytest.raises(InvalidBatchError, match=f"format {magic}"):
        check_batch(raw, ANY)


@pytest.mark.parametrize("more", [-1, 1, 1000])
def test_a_length_that_is_not_that_of_the_bytes_is_refused(more: int) -> None:
    raw = bytearray(make_batch([b"value"]))
    pack_into(">i", raw, 8, len(raw) - 12 + more)
    with pytest.raises(InvalidBatchError, match="were given"):
        check_batch(raw, ANY)


@pytest.mark.parametrize(("count", "delta"), [(0, -1), (0, 0), (-1, -2), (2, 2), (3, 1), (2, 0)])
def test_records_that_are_not_numbered_through_are_refused(count: int, delta: int) -> None:
    raw = _changed(_changed(make_batch([b"a", b"b"]), 57, ">i", count), 23, ">i", delta)
    with pytest.raises(InvalidBatchError, match="numbered through"):
        check_batch(raw, ANY)


def test_a_batch_over_the_limit_is_refused_and_one_at_it_is_not() -> None:
    raw = make_batch([b"x" * 1000])
    check_batch(raw, len(raw))
    with pytest.raises(BatchTooLargeError, match=f"{len(raw)} bytes, the topic takes {len(raw) - 1}"):
        check_batch(raw, len(raw) - 1)


def test_a_transactional_batch_of_no_producer_is_refused() -> None:
    with pytest.raises(InvalidBatchError, match="no producer"):
        check_batch(make_batch([b"v"], attributes=0x10), ANY)


def test_the_records_themselves_are_not_looked_at() -> None:
    """Compressed batches stay compressed: what follows the header may be anything that matches the checksum."""
    raw = _changed(make_batch([b"xxxxxxxx"]), 62, ">q", 0x0102030405060708)
    assert check_batch(raw, ANY).messages == 1


@pytest.mark.parametrize("commit", [True, False])
def test_markers_say_whether_they_commit(commit: bool) -> None:
    marker = check_batch(make_marker(commit=commit, producer_id=3), ANY)
    assert marker.is_control
    assert marker.is_transactional
    assert is_commit_marker(marker) is commit


@pytest.mark.parametrize("key", [b"\0\0\0\2", b"\0", b"", None])
def test_a_control_batch_without_a_marker_in_it_is_refused(key: bytes | None) -> None:
    batch = check_batch(make_batch([b""], key=key, attributes=0x30, producer_id=1), ANY)
    with pytest.raises(InvalidBatchError, match="marker"):
        is_commit_marker(batch)


def test_a_control_batch_of_broken_numbers_is_refused() -> None:
    raw = bytearray(make_marker(commit=True, producer_id=1))
    raw[61:] = b"\xff" * (len(raw) - 61)
    pack_into(">I", raw, 17, crc32c(bytes(raw[21:])))
    with pytest.raises(InvalidBatchError, match="marker"):
        is_commit_marker(check_batch(raw, ANY))


def test_batches_one_after_another_are_told_apart() -> None:
    batches = [make_batch([b"v" * n] * n) for n in (1, 5, 30)]
    assert split_batches(b"".join(batches)) == batches
    assert split_batches(b"") == []


@pytest.mark.parametrize(
    "tail",
    [b"left over", pack(">qi", 0, 10**9), pack(">qi", 0, -12), pack(">qi", 0, 20) + bytes(20), make_batch([b"v"])[:-1]],
)
def test_bytes_behind_the_last_batch_are_refused(tail: bytes) -> None:
    with pytest.raises(InvalidBatchError):
        split_batches(make_batch([b"a"]) + tail)


def test_a_stored_batch_is_the_same_but_for_its_place() -> None:
    raw = make_batch([b"a", b"b", b"c"], timestamp=5)
    added = PartitionAppend(1000, 7)
    added.add(check_batch(raw, ANY), None, None)
    stored = added.data()
    assert len(stored) == len(raw)
    assert check_batch(stored, ANY).messages == 3
    assert span_at(b"??" + stored, 2) == (1000, 1003, len(raw))
    assert max_timestamp_at(b"??" + stored, 2) == 5
    assert values_of(stored) == [(1000, b"a"), (1001, b"b"), (1002, b"c")]
    assert stored[12:16] == pack(">i", 7)
