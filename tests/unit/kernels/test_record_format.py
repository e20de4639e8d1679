"""The record format: what is packed is read again, by hand and by the compiled scan, and what is broken is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import CorruptionError
from penstock.core.record_compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress_like
from penstock.core.record_format import (
    APPEND_TIME,
    CONTROL,
    TRANSACTIONAL,
    Writer,
    framed,
    header_at,
    packed_record,
    read_headers,
    read_octets,
)
from penstock.core.varint import read_varint, varint
from penstock.kernels.record_scan import HEADERS_AT, KEY_AT, OFFSET_DELTA, TIMESTAMP_DELTA, VALUE_AT
from penstock.queue import Aborted, check_batch, committed_batches, is_aborted, scan_batch

octets = st.none() | st.binary(max_size=200)
records = st.lists(
    st.tuples(octets, octets, st.lists(st.tuples(st.binary(max_size=20), octets), max_size=3), st.integers(-(2**40), 2**40)),
    min_size=1,
    max_size=20,
)


@given(records, st.sampled_from([NONE, GZIP, SNAPPY, LZ4, ZSTD]))
def test_records_come_back(
    given_records: list[tuple[bytes | None, bytes | None, list[tuple[bytes, bytes | None]], int]], codec: int
) -> None:
    packed = b"".join(
        packed_record(delta, value, key=key, headers=headers, time_delta=time_delta)
        for delta, (key, value, headers, time_delta) in enumerate(given_records)
    )
    body = compress_like(codec, memoryview(b""), packed) if codec else packed
    batch = framed(body, len(given_records), (5, 7), attributes=codec, writer=Writer(1, 2, 3), base_offset=100)
    assert check_batch(batch, 1 << 20).messages == len(given_records)
    scanned = scan_batch(batch)
    assert scanned is not None
    assert (scanned.header.base_offset, scanned.header.next_offset) == (100, 100 + len(given_records))
    plain = bytes(scanned.records)
    for row, (key, value, headers, time_delta) in zip(scanned.table.tolist(), given_records, strict=True):
        assert row[TIMESTAMP_DELTA] == time_delta
        assert read_headers(plain, row[HEADERS_AT]) == headers
        for wanted, at in ((key, KEY_AT), (value, VALUE_AT)):
            size = row[at + 1]
            assert (None if size < 0 else plain[row[at] : row[at] + size]) == wanted
    assert scanned.table[:, OFFSET_DELTA].tolist() == list(range(len(given_records)))
    assert [scanned.first_row(100 + at) for at in range(len(given_records))] == list(range(len(given_records)))


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=3))
def test_a_varint_comes_back(number: int, after: bytes) -> None:
    packed = varint(number)
    assert read_varint(packed + after, 0) == (number, len(packed))


@pytest.mark.parametrize("raw", [b"", b"\x80", b"\xff" * 11])
def test_a_varint_that_does_not_end(raw: bytes) -> None:
    with pytest.raises(IndexError):
        read_varint(raw, 0)


@pytest.mark.parametrize("raw", [b"", b"\x02", b"\x02\x04a", b"\x02\x02a\x04b", b"\x04\x02a\x02b"])
def test_headers_that_are_cut_off(raw: bytes) -> None:
    with pytest.raises(CorruptionError):
        read_headers(raw, 0)


def test_a_header_whose_name_is_null_has_an_empty_one() -> None:
    assert read_headers(b"\x02\x01\x02b", 0) == [(b"", b"b")]


def test_octets_that_are_cut_off() -> None:
    with pytest.raises(IndexError):
        read_octets(b"\x04a", 0)


def test_what_a_header_says() -> None:
    one = packed_record(0, b"x")
    stamped = header_at(framed(one, 1, (5, 9), attributes=APPEND_TIME))
    assert (stamped.stamp_ms, stamped.is_control, stamped.is_transactional) == (9, False, False)
    marker = framed(one, 1, (5, 9), attributes=CONTROL | TRANSACTIONAL, writer=Writer(7, 0))
    assert header_at(marker).stamp_ms is None
    assert scan_batch(marker) is None


def test_only_committed_data_is_left() -> None:
    def batch(base_offset: int, attributes: int, producer: int = -1) -> bytes:
        writer = Writer(producer, 0, 0)
        return framed(packed_record(0, b"x"), 1, (0, 0), attributes=attributes, writer=writer, base_offset=base_offset)

    plain, kept, gone = batch(0, 0), batch(1, TRANSACTIONAL, 7), batch(2, TRANSACTIONAL, 8)
    marker, later = batch(3, TRANSACTIONAL | CONTROL, 8), batch(4, TRANSACTIONAL, 8)
    aborted = [Aborted(last_offset=3, producer_id=8, first_offset=2)]
    assert is_aborted(memoryview(gone), aborted)
    found = [header_at(one).base_offset for one in committed_batches(plain + kept + gone + marker + later, aborted)]
    assert found == [0, 1, 4]
