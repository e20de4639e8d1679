"""Records: whatever is changed in one is noticed, and one that stands in the wrong place is not believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.blob.blob_id import BlobId
from penstock.blob.record import (
    BLOCK_SIZE,
    HEADER_SIZE,
    RecordKind,
    block_table,
    blocks_are_sound,
    body_is_sound,
    decode_header,
    encode,
    encode_later,
    record_size,
    table_size,
)
from penstock.blob.vector import Vector

ID = BlobId(1, 0, 2, 3, 4, 5, 1).pack()
PLACE = (7, 4096)


def _encoded(body: bytes) -> bytes:
    return b"".join(encode(RecordKind.PART, ID, body, PLACE, (7, 64)))


def _is_sound(raw: bytes, length: int) -> bool:
    header = decode_header(raw, *PLACE)
    table = HEADER_SIZE + table_size(length)
    return header is not None and header.length == length and body_is_sound(header, raw[HEADER_SIZE:table], raw[table:])


@pytest.mark.parametrize("length", [0, 1, BLOCK_SIZE, BLOCK_SIZE + 1, 3 * BLOCK_SIZE])
def test_a_record_has_the_size_that_is_reckoned_with(length: int) -> None:
    raw = _encoded(bytes(length))
    assert len(raw) == record_size(length) == HEADER_SIZE + table_size(length) + length
    assert _is_sound(raw, length)


def test_only_long_bodies_have_a_table() -> None:
    assert table_size(BLOCK_SIZE) == 0
    assert table_size(BLOCK_SIZE + 1) == 8


def test_a_header_is_read_back() -> None:
    header = decode_header(_encoded(b"body"), *PLACE)
    assert header is not None
    assert (header.kind, header.length, header.durable, header.blob_id) == (RecordKind.PART, 4, (7, 64), ID)
    assert (header.chunk, header.offset) == PLACE


def test_a_flipped_bit_anywhere_is_noticed() -> None:
    raw = _encoded(b"some body")
    for bit in range(len(raw) * 8):
        spoilt = bytearray(raw)
        spoilt[bit // 8] ^= 1 << bit % 8
        assert not _is_sound(bytes(spoilt), 9), bit


@pytest.mark.parametrize("at", [HEADER_SIZE, HEADER_SIZE + 4, HEADER_SIZE + 8, HEADER_SIZE + 8 + BLOCK_SIZE])
def test_a_flipped_bit_in_table_or_body_of_a_long_record_is_noticed(at: int) -> None:
    raw = bytearray(_encoded(bytes(BLOCK_SIZE + 100)))
    raw[at] ^= 1
    assert not _is_sound(bytes(raw), BLOCK_SIZE + 100)


def test_a_record_found_elsewhere_is_not_believed() -> None:
    raw = _encoded(b"body")
    assert decode_header(raw, 7, 4096) is not None
    assert decode_header(raw, 8, 4096) is None
    assert decode_header(raw, 7, 4160) is None


@pytest.mark.parametrize("kept", [0, 1, HEADER_SIZE - 1])
def test_a_header_cut_short_is_none(kept: int) -> None:
    assert decode_header(_encoded(b"body")[:kept], *PLACE) is None


def test_a_body_cut_short_is_unsound() -> None:
    assert not _is_sound(_encoded(b"body")[:-1], 4)


def test_blocks_are_verified_alone() -> None:
    body = bytes(range(256)) * 1024
    table = block_table(body)
    second = body[BLOCK_SIZE : 2 * BLOCK_SIZE]
    assert blocks_are_sound(table[4:8], second)
    assert not blocks_are_sound(table[4:8], second[:-1] + b"!")
    assert not blocks_are_sound(table[4:8], body[: 2 * BLOCK_SIZE])


def test_the_body_is_not_copied() -> None:
    body = bytearray(100)
    assert encode(RecordKind.PART, ID, body, PLACE, (0, 0))[1] is body


@given(st.lists(st.sampled_from([1, 61, 5000, BLOCK_SIZE - 1, BLOCK_SIZE, 2 * BLOCK_SIZE + 7]), min_size=1, max_size=8))
def test_a_body_in_several_buffers_is_stored_as_if_it_were_in_one(sizes: list[int]) -> None:
    buffers = [bytes([number]) * size for number, size in enumerate(sizes)]
    encoded = encode(RecordKind.PART, ID, Vector(buffers), PLACE, (7, 64))
    assert b"".join(encoded) == _encoded(b"".join(buffers))
    assert all(part is buffer for part, buffer in zip(encoded[1:], buffers, strict=True))


@pytest.mark.parametrize("length", [0, BLOCK_SIZE, BLOCK_SIZE + 1, 3 * BLOCK_SIZE])
def test_a_record_that_is_filled_in_later_is_the_same(length: int) -> None:
    body = Vector([bytes(length // 2), b"x" * (length - length // 2)]) if length else b""
    place, durable = (3, 4096), (2, 100)
    buffers, fill = encode_later(RecordKind.PART, ID, body, place, durable)
    lengths = list(map(len, buffers))
    fill()
    assert list(map(len, buffers)) == lengths
    assert b"".join(buffers) == b"".join(encode(RecordKind.PART, ID, body, place, durable))
