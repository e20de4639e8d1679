"""The codes: parts from blobs, blobs from parts, and parity that can never change."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.blob.disk import Buffer
from penstock.blob.erasure import Codec, codec_for
from penstock.blob.topology import Erasure
from penstock.core.checksum import crc32c

BLOCK = codec_for(Erasure.BLOCK_4_2)
MIRROR = codec_for(Erasure.MIRROR_3_DC)
NONE = codec_for(Erasure.NONE)
PARTS = range(1, 7)
ENOUGH = [have for count in (4, 5, 6) for have in combinations(PARTS, count)]
TOO_FEW = [have for count in range(4) for have in combinations(PARTS, count)]
SIZES = [*range(1, 301), *(near for whole in (384, 512, 4096, 65536) for near in range(whole - 2, whole + 3)), 2**20 + 1]


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def block_parts(data: Buffer) -> dict[int, Buffer]:
    return dict(enumerate(BLOCK.encode(data), 1))


def only(parts: dict[int, Buffer], have: Iterable[int]) -> dict[int, Buffer]:
    return {part: parts[part] for part in have}


def slow_parity(data: bytes) -> tuple[bytes, bytes]:
    """P and Q of RDP with p = 5 by its definition, a cell at a time, cells being integers."""
    size = (len(data) + 127) // 128 * 32
    padded = data.ljust(4 * size, b"\0")
    row = size // 4
    cells = {
        (r, c): int.from_bytes(padded[c * size + r * row : c * size + (r + 1) * row], "big") for c in range(4) for r in range(4)
    }
    for r in range(4):
        cells[r, 4] = cells[r, 0] ^ cells[r, 1] ^ cells[r, 2] ^ cells[r, 3]
    diagonals = [0] * 5
    for (r, c), value in cells.items():
        diagonals[(r + c) % 5] ^= value
    return (
        b"".join(cells[r, 4].to_bytes(row, "big") for r in range(4)),
        b"".join(diagonals[r].to_bytes(row, "big") for r in range(4)),
    )


@pytest.mark.parametrize(("codec", "total", "enough"), [(NONE, 1, 1), (MIRROR, 3, 1), (BLOCK, 6, 4)])
def test_a_code_says_how_many_parts_it_has_and_needs(codec: Codec, total: int, enough: int) -> None:
    assert (codec.total_parts, codec.data_parts) == (total, enough)


@pytest.mark.parametrize(("size", "part_size"), [(1, 32), (128, 32), (129, 64), (4096, 1024), (10 * 2**20, 2621440)])
def test_a_block_part_is_a_quarter_rounded_up_to_32_bytes(size: int, part_size: int) -> None:
    assert BLOCK.part_size(size) == part_size


@pytest.mark.parametrize("size", SIZES)
def test_block_data_parts_are_the_blob_padded_with_zeros(size: int) -> None:
    data = noise(size)
    assert b"".join(BLOCK.encode(data)[:4]) == data.ljust(4 * BLOCK.part_size(size), b"\0")


@pytest.mark.parametrize("size", SIZES)
def test_block_parity_is_row_diagonal_parity_by_definition(size: int) -> None:
    data = noise(size)
    assert tuple(map(bytes, BLOCK.encode(data)[4:])) == slow_parity(data)


def test_block_parity_of_a_small_blob_is_pinned() -> None:
    small = bytes(range(1, 101))
    assert [bytes(part).hex() for part in BLOCK.encode(small)[4:]] == [
        "0000000065666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f00",
        "3132333435363718595a5b5c5d5e5f4000000000000000600000000065666748",
    ]


def test_block_parity_of_a_large_blob_is_pinned() -> None:
    large = bytes(index * 131 + index // 251 & 0xFF for index in range(100_003))
    assert [crc32c(part) for part in BLOCK.encode(large)] == [
        0xB6A14AAA,
        0x089F6F0C,
        0x456ED8A9,
        0x8BA3B9F3,
        0x3E2F3AAD,
        0x2C5A5247,
    ]


def test_unpadded_block_parts_share_the_memory_of_the_blob() -> None:
    blob = bytearray(noise(1024))
    parts = BLOCK.encode(blob)
    blob[:] = bytes(1024)
    assert b"".join(parts[:4]) == bytes(1024)


@pytest.mark.parametrize("shift", range(1, 8))
def test_a_blob_at_an_odd_address_has_the_same_parts(shift: int) -> None:
    data = noise(5000)
    assert BLOCK.encode(memoryview(bytes(shift) + data)[shift:]) == BLOCK.encode(data)


@pytest.mark.parametrize("have", ENOUGH)
def test_any_four_block_parts_restore_all_parts_of_every_size(have: tuple[int, ...]) -> None:
    for size in SIZES:
        parts = block_parts(noise(size))
        assert BLOCK.restore(size, only(parts, have), PARTS) == parts, size


@pytest.mark.parametrize("have", ENOUGH)
def test_any_four_block_parts_join_to_the_blob_of_every_size(have: tuple[int, ...]) -> None:
    for size in SIZES:
        data = noise(size)
        assert BLOCK.join(size, only(block_parts(data), have)) == data, size


@pytest.mark.parametrize("have", ENOUGH)
def test_each_block_part_can_be_restored_alone(have: tuple[int, ...]) -> None:
    parts = block_parts(noise(1000))
    for part in PARTS:
        assert BLOCK.restore(1000, only(parts, have), [part]) == {part: parts[part]}


@pytest.mark.parametrize("have", TOO_FEW)
def test_three_block_parts_never_restore_another(have: tuple[int, ...]) -> None:
    some = only(block_parts(noise(1000)), have)
    for part in set(PARTS) - set(have):
        with pytest.raises(ValueError, match="four different ones are needed"):
            BLOCK.restore(1000, some, [part])


@pytest.mark.parametrize("have", TOO_FEW)
def test_three_block_parts_never_join_to_a_blob(have: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="four different ones are needed"):
        BLOCK.join(1000, only(block_parts(noise(1000)), have))


def test_a_wanted_part_that_is_given_needs_no_others() -> None:
    parts = block_parts(noise(1000))
    assert BLOCK.restore(1000, only(parts, [3]), [3]) == {3: parts[3]}


def test_restoring_leaves_the_given_parts_as_they_are() -> None:
    given_parts: dict[int, Buffer] = {part: bytearray(buffer) for part, buffer in block_parts(noise(1000)).items() if part > 2}
    before = {part: bytes(buffer) for part, buffer in given_parts.items()}
    BLOCK.join(1000, given_parts)
    BLOCK.restore(1000, given_parts, PARTS)
    assert given_parts == before


def test_the_largest_blob_survives_the_loss_of_two_data_parts() -> None:
    data = noise(10 * 2**20)
    assert BLOCK.join(len(data), only(block_parts(data), [2, 4, 5, 6])) == data


@pytest.mark.parametrize("erasure", Erasure)
def test_a_part_of_the_wrong_size_is_refused(erasure: Erasure) -> None:
    with pytest.raises(ValueError, match="has 7 bytes"):
        codec_for(erasure).join(1000, {1: bytes(7)})


@pytest.mark.parametrize("erasure", Erasure)
@pytest.mark.parametrize("part", [0, 7])
def test_a_wanted_part_the_code_does_not_have_is_refused(erasure: Erasure, part: int) -> None:
    with pytest.raises(ValueError, match="wanted"):
        codec_for(erasure).restore(1000, {}, [part])


@pytest.mark.parametrize("erasure", [Erasure.NONE, Erasure.MIRROR_3_DC])
def test_every_part_of_a_whole_copy_code_is_the_blob_itself(erasure: Erasure) -> None:
    data = noise(1000)
    codec = codec_for(erasure)
    assert all(part is data for part in codec.encode(data))


@pytest.mark.parametrize("have", [1, 2, 3])
def test_any_replica_restores_all(have: int) -> None:
    data = noise(1000)
    assert MIRROR.restore(1000, {have: data}, [1, 2, 3]) == {1: data, 2: data, 3: data}


@pytest.mark.parametrize("have", [1, 2, 3])
def test_any_replica_is_the_blob(have: int) -> None:
    data = noise(1000)
    assert MIRROR.join(1000, {have: bytearray(data)}) == data


@pytest.mark.parametrize("erasure", [Erasure.NONE, Erasure.MIRROR_3_DC])
def test_no_replica_is_no_blob(erasure: Erasure) -> None:
    with pytest.raises(ValueError, match="no part of the blob is at hand"):
        codec_for(erasure).join(1000, {})


@pytest.mark.parametrize("erasure", Erasure)
def test_slices_give_every_range_of_a_blob_exactly(erasure: Erasure) -> None:
    data = noise(140)
    codec = codec_for(erasure)
    parts = codec.encode(data)
    for start, stop in combinations(range(141), 2):
        pieces = codec.slices(140, start, stop - start)
        assert b"".join(parts[part - 1][at : at + length] for part, at, length in pieces) == data[start:stop]


def test_slices_touch_only_the_parts_of_the_range() -> None:
    assert BLOCK.slices(4096, 1000, 100) == [(1, 1000, 24), (2, 0, 76)]


@pytest.mark.parametrize("erasure", Erasure)
def test_an_empty_range_has_no_slices(erasure: Erasure) -> None:
    assert codec_for(erasure).slices(100, 50, 0) == []


@pytest.mark.parametrize("erasure", Erasure)
@pytest.mark.parametrize(("offset", "length"), [(-1, 1), (0, 101), (101, 0), (50, -1)])
def test_a_range_outside_the_blob_is_refused(erasure: Erasure, offset: int, length: int) -> None:
    with pytest.raises(ValueError, match="outside the blob"):
        codec_for(erasure).slices(100, offset, length)


@given(data=st.binary(min_size=1, max_size=3000), have=st.sets(st.sampled_from(PARTS), min_size=4))
def test_any_blob_is_the_same_after_any_tolerated_loss(data: bytes, have: set[int]) -> None:
    assert BLOCK.join(len(data), only(block_parts(data), have)) == data
