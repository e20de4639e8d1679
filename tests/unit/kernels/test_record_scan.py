"""The scan of records, compiled and as plain Python: the same table from both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels import FIELDS, MalformedRecordsError, record_scan, scan_records
from penstock.testing.batches import make_batch
from tests.kernel_forms import uncompiled

Scan = Callable[[bytes, Any], int]
Find = Callable[[bytes, int], tuple[int, ...] | None]


def _plain() -> tuple[Scan, Find]:
    module = uncompiled("record_scan")
    # Its error is a class of its own; callers know that of the package.
    vars(module)["MalformedRecordsError"] = MalformedRecordsError
    return module.scan_records, module.find_record


PLAIN, PLAIN_FIND = _plain()


@pytest.fixture(params=[scan_records, PLAIN], ids=["as installed", "uncompiled"])
def scan(request: pytest.FixtureRequest) -> Scan:
    found: Scan = request.param
    return found


def _varint(number: int) -> bytes:
    value = (number << 1) ^ (number >> 63)
    raw = bytearray()
    while value >= 0x80:
        raw.append(value & 0x7F | 0x80)
        value >>= 7
    raw.append(value)
    return bytes(raw)


def _field(content: bytes | None) -> bytes:
    return _varint(-1) if content is None else _varint(len(content)) + content


def _record(timestamp_delta: int, offset_delta: int, key: bytes | None, value: bytes | None) -> bytes:
    body = b"\0" + _varint(timestamp_delta) + _varint(offset_delta) + _field(key) + _field(value) + _varint(0)
    return _varint(len(body)) + body


def _table(rows: int) -> Any:
    return np.empty((rows, FIELDS), np.int64)


numbers = st.integers(-(1 << 63), (1 << 63) - 1)
fields = st.none() | st.binary(max_size=200)


@given(st.lists(st.tuples(numbers, numbers, fields, fields), max_size=8))
def test_every_part_of_every_record_is_found(records: list[tuple[int, int, bytes | None, bytes | None]]) -> None:
    data = b"".join(_record(*record) for record in records)
    for scan in (scan_records, PLAIN):
        table = _table(len(records))
        assert scan(data, table) == len(data)
        for row, (timestamp, offset, key, value) in zip(table, records, strict=True):
            assert row[record_scan.TIMESTAMP_DELTA] == timestamp
            assert row[record_scan.OFFSET_DELTA] == offset
            assert _cut(data, row[record_scan.KEY_AT], row[record_scan.KEY_SIZE]) == key
            assert _cut(data, row[record_scan.VALUE_AT], row[record_scan.VALUE_SIZE]) == value
            assert data[row[record_scan.HEADERS_AT] : row[record_scan.END]] == b"\0"


@given(st.lists(st.integers(0, 100), max_size=8, unique=True).map(sorted), fields, fields, st.integers(-1, 101))
def test_a_record_is_found_by_its_offset(deltas: list[int], key: bytes | None, value: bytes | None, wanted: int) -> None:
    data = b"".join(_record(delta + 7, delta, key, value) for delta in deltas)
    table = _table(len(deltas))
    scan_records(data, table)
    rows = {row[record_scan.OFFSET_DELTA]: row for row in table.tolist()}
    columns = [record_scan.TIMESTAMP_DELTA, *range(record_scan.KEY_AT, FIELDS)]
    for find in (record_scan.find_record, PLAIN_FIND):
        assert find(data, wanted) == (tuple(rows[wanted][column] for column in columns) if wanted in rows else None)


@given(st.binary(max_size=60), st.integers(-2, 60))
def test_any_bytes_are_searched_alike(data: bytes, wanted: int) -> None:
    outcomes: list[tuple[int, ...] | str | None] = []
    for find in (record_scan.find_record, PLAIN_FIND):
        try:
            outcomes.append(find(data, wanted))
        except MalformedRecordsError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


@given(st.binary(max_size=60), st.integers(1, 5))
def test_any_bytes_give_the_same_table_or_the_same_error(data: bytes, rows: int) -> None:
    outcomes = []
    for scan in (scan_records, PLAIN):
        table = _table(rows)
        try:
            outcomes.append((scan(data, table), table.tolist()))
        except MalformedRecordsError as error:
            outcomes.append((-1, [[str(error)]]))
    assert outcomes[0] == outcomes[1]


def test_a_record_that_is_cut_short_is_malformed(scan: Scan) -> None:
    data = _record(1, 0, b"key", b"value")
    for end in range(len(data)):
        with pytest.raises(MalformedRecordsError):
            scan(data[:end], _table(1))


def test_fewer_records_than_promised_are_malformed(scan: Scan) -> None:
    with pytest.raises(MalformedRecordsError):
        scan(_record(0, 0, None, b"only one"), _table(2))


def test_a_number_that_never_ends_is_malformed(scan: Scan) -> None:
    with pytest.raises(MalformedRecordsError):
        scan(b"\xff" * 100, _table(1))


def _cut(data: bytes, at: int, size: int) -> bytes | None:
    return None if size < 0 else data[at : at + size]


@pytest.mark.parametrize("module", [record_scan, uncompiled("record_scan")], ids=["as installed", "uncompiled"])
def test_a_run_of_batches_is_scanned_with_offsets(module: Any) -> None:
    contents = [[b"one", b"two"], [b"three"], [b"four", b"five", b"six"]]
    run = bytearray()
    for number, values in enumerate(contents):
        batch = bytearray(make_batch(values))
        batch[:8] = (100 * number + (1 << 40)).to_bytes(8, "big")
        run += batch
    table = np.empty((module.count_run(bytes(run)), FIELDS), np.int64)
    module.scan_run(bytes(run), table)
    found = [
        (row[record_scan.OFFSET_DELTA] - (1 << 40), bytes(run[row[record_scan.VALUE_AT] :][: row[record_scan.VALUE_SIZE]]))
        for row in table.tolist()
    ]
    assert found == [(0, b"one"), (1, b"two"), (100, b"three"), (200, b"four"), (201, b"five"), (202, b"six")]


@pytest.mark.parametrize("module", [record_scan, uncompiled("record_scan")], ids=["as installed", "uncompiled"])
def test_a_run_with_a_compressed_batch_is_not_plain_and_one_cut_short_is_malformed(module: Any) -> None:
    plain = bytes(make_batch([b"one"]))
    compressed = bytearray(plain)
    compressed[22] |= 2
    assert module.count_run(b"") == 0
    assert module.count_run(plain + bytes(compressed)) == -1
    for size in (len(plain) - 1, 61, 60, 5):
        with pytest.raises(module.MalformedRecordsError):
            module.count_run(plain + plain[:size])
    lying = bytearray(plain)
    lying[57:61] = (7).to_bytes(4, "big")
    with pytest.raises(module.MalformedRecordsError):
        module.scan_run(bytes(lying), np.empty((module.count_run(bytes(lying)), FIELDS), np.int64))
