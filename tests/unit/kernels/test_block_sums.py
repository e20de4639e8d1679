"""The checksums of blocks: equal compiled and as plain Python, and those of the crc32c package, whatever the buffers."""

from __future__ import annotations

from random import Random
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.checksum import crc32c
from penstock.core.record_format import HEADER_SIZE
from penstock.kernels import block_sums
from penstock.testing.batches import make_batch
from tests.kernel_forms import uncompiled

FORMS = {"as installed": block_sums, "uncompiled": uncompiled("block_sums")}
forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
STREAMS = (256, 2048)  # bytes of each of the three that are computed at once
BYTES = Random(1).randbytes(300_000)


def _expected(data: bytes, block_size: int) -> bytes:
    return b"".join(crc32c(data[at : at + block_size]).to_bytes(4, "big") for at in range(0, len(data), block_size))


@forms
@pytest.mark.parametrize("size", [3 * length * count + more for length in STREAMS for count in (1, 2) for more in (-1, 0, 1, 9)])
def test_one_block_of_any_length_has_the_checksum_of_its_bytes(form: ModuleType, size: int) -> None:
    assert form.block_sums((BYTES[:size],), 1 << 20) == _expected(BYTES[:size], 1 << 20)


@forms
@given(
    sizes=st.lists(st.sampled_from([0, 1, 7, 61, 999, 1000, 5000, 65_500]), max_size=5),
    block_size=st.sampled_from([1000, 4096, 64 << 10]),
    kind=st.sampled_from([bytes, bytearray, memoryview]),
)
def test_blocks_go_on_over_the_ends_of_buffers(form: ModuleType, sizes: list[int], block_size: int, kind: type) -> None:
    ends = [sum(sizes[: count + 1]) for count in range(len(sizes))]
    buffers = [kind(BYTES[end - size : end]) for size, end in zip(sizes, ends, strict=True)]
    assert form.block_sums(buffers, block_size) == _expected(BYTES[: sum(sizes)], block_size)


@forms
def test_what_is_no_buffer_is_refused(form: ModuleType) -> None:
    with pytest.raises(TypeError):
        form.block_sums((b"buffer", "text"), 1000)
    with pytest.raises(ValueError, match="at least one byte"):
        form.block_sums((b"buffer",), 0)


@forms
@given(
    sizes=st.lists(st.sampled_from([1, 61, 4096, 4097, 9000, 32_768, 65_000, 65_536, 70_000]), min_size=1, max_size=4),
    block_size=st.sampled_from([5000, 64 << 10, 100_000]),
    known=st.integers(0, 15),
)
def test_checksums_that_are_known_give_the_same(form: ModuleType, sizes: list[int], block_size: int, known: int) -> None:
    ends = [sum(sizes[: count + 1]) for count in range(len(sizes))]
    buffers = [BYTES[end - size : end] for size, end in zip(sizes, ends, strict=True)]
    sums = [crc32c(buffer) if known >> number & 1 else -1 for number, buffer in enumerate(buffers)]
    assert form.block_sums(buffers, block_size, sums) == _expected(BYTES[: sum(sizes)], block_size)


def test_bytes_that_do_not_have_the_checksum_they_are_said_to_have_are_found_out() -> None:
    """What is stored is what was checked: bytes that changed after that do not match the record's checksums."""
    if block_sums.records_sum(make_batch([BYTES[:100]])) < 0:
        pytest.skip("checksums are not combined on this machine")
    buffers = (b"header", BYTES[:65_000])
    wrong = block_sums.block_sums(buffers, 64 << 10, [-1, crc32c(BYTES[:65_000]) ^ 1])
    assert wrong != _expected(b"".join(buffers), 64 << 10)


@forms
@pytest.mark.parametrize("size", [1, 100, 65_536])
def test_the_checksum_of_records_follows_from_that_of_their_batch(form: ModuleType, size: int) -> None:
    batch = make_batch([BYTES[:size]])
    assert form.records_sum(batch) in {-1, crc32c(batch[HEADER_SIZE:])}


def test_no_checksum_follows_from_what_is_too_short_for_a_batch() -> None:
    assert block_sums.records_sum(b"short") == -1
