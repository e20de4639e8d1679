"""Stored batches to Arrow columns, compiled and as plain Python: the same rows from both, and those that were written."""

from __future__ import annotations

import importlib.util
import zlib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock.kernels
from penstock.client.record_batch import Record, Source, encode_batch
from penstock.core.checksum import crc32c
from penstock.core.record_format import FROM_STREAMS, FROM_YDB, FROM_YT
from penstock.kernels import arrow_decode
from penstock.kernels.arrow_decode import MalformedBatchError

SOURCE = Path(penstock.kernels.__file__).with_name("arrow_decode.py")
FOREVER = 1 << 62
ABORT, COMMIT = 0, 1

Row = tuple[int, int, int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]] | None]


def _uncompiled() -> ModuleType:
    spec = importlib.util.spec_from_file_location("arrow_decode_uncompiled", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.COMPILED is False
    # Its error is a class of its own; callers know that of the package.
    vars(module)["MalformedBatchError"] = MalformedBatchError
    return module


PLAIN = _uncompiled()
BOTH: list[Any] = [arrow_decode, PLAIN]


@pytest.fixture(params=BOTH, ids=["as installed", "uncompiled"])
def kernel(request: pytest.FixtureRequest) -> Any:
    return request.param


class Columns:
    """Rooms of one size, and the rows they were filled with."""

    def __init__(self, kernel: Any, rows: int = 100, size: int = 1 << 16, *, headers: bool = True) -> None:
        self._kernel, self._rows, self._size, self._headers = kernel, rows, size, headers
        self.rows: list[Row] = []

    def decode(self, decoder: Any) -> None:
        """Fill as many rooms as it takes."""
        more = True
        needed = 0
        while more:
            more, needed = self._fill(decoder, max(self._size, needed))

    def _fill(self, decoder: Any, size: int) -> tuple[bool, int]:
        numbers = (np.empty(self._rows, np.int64), np.empty(self._rows, np.int64), np.empty(self._rows, np.int32))
        keys, values, names, contents = (_Octets(self._kernel, max(self._rows, size), size) for _ in range(4))
        starts, valid = np.empty(self._rows + 1, np.int32), np.zeros(self._rows // 8 + 1, np.uint8)
        headers = (starts, valid, names.room, contents.room) if self._headers else None
        room = self._kernel.ArrowRoom(numbers, keys.room, values.room, headers)
        more = decoder.fill(room)
        pairs = list(zip(names.strings(), contents.strings(), strict=True))
        for row in range(room.rows):
            has_headers = self._headers and valid[row >> 3] >> (row & 7) & 1
            found = [(name or b"", content) for name, content in pairs[starts[row] : starts[row + 1]]] if has_headers else None
            self.rows.append((*(int(one[row]) for one in numbers), keys.strings()[row], values.strings()[row], found))  # type: ignore[arg-type]
        assert not more or room.rows or decoder.needed
        return more, decoder.needed


class _Octets:
    def __init__(self, kernel: Any, rows: int, size: int) -> None:
        self.offsets, self.validity = np.zeros(rows + 1, np.int32), np.zeros(rows // 8 + 1, np.uint8)
        self.data = np.empty(size, np.uint8)
        self.room = kernel.OctetsRoom(self.offsets, self.validity, self.data)

    def strings(self) -> list[bytes | None]:
        rows = range(self.room.rows)
        found = [self.data[self.offsets[row] : self.offsets[row + 1]].tobytes() for row in rows]
        assert self.room.nulls == sum(not self._valid(row) for row in rows)
        return [text if self._valid(row) else None for row, text in enumerate(found)]

    def _valid(self, row: int) -> bool:
        return bool(self.validity[row >> 3] >> (row & 7) & 1)


def batch_at(offset: int, records: Sequence[Record], *, attributes: int = 0, producer_id: int = -1, codec: str = "") -> bytes:
    """A batch as it is stored."""
    raw = bytearray(encode_batch(records, Source(producer_id, 0)))
    if codec == "gzip":
        packer = zlib.compressobj(wbits=31)
        raw[61:] = packer.compress(raw[61:]) + packer.flush()
        raw[8:12] = (len(raw) - 12).to_bytes(4, "big")
        attributes |= 1
    raw[:8] = offset.to_bytes(8, "big")
    raw[21:23] = attributes.to_bytes(2, "big")
    raw[17:21] = crc32c(memoryview(raw)[21:]).to_bytes(4, "big")
    return bytes(raw)


def marker_at(offset: int, kind: int, producer_id: int) -> bytes:
    """The end of a transaction."""
    key = (0).to_bytes(2, "big") + kind.to_bytes(2, "big")
    return batch_at(offset, [Record(0, 0, key, bytes(6))], attributes=0x30, producer_id=producer_id)


def gunzip(codec: int, records: memoryview) -> bytes:
    if codec != 1:
        raise ValueError(f"compression {codec} is not spoken here")
    try:
        return zlib.decompress(records, 31)
    except zlib.error as error:
        raise ValueError(str(error)) from error


def decoded(kernel: Any, data: bytes, start: int = 0, stop: int = FOREVER, **room: Any) -> list[Row]:
    decoder = kernel.BatchDecoder(start, stop, gunzip)
    decoder.feed(data)
    columns = Columns(kernel, **room)
    columns.decode(decoder)
    return columns.rows


names = st.text(max_size=8)
octets = st.none() | st.binary(max_size=60)
records_of_a_batch = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(-1, 1 << 45),
        octets,
        octets,
        st.lists(st.tuples(names, octets), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=6,
)


@given(
    st.lists(st.tuples(records_of_a_batch, st.sampled_from(["", "gzip"]), st.integers(0, 3)), max_size=5),
    st.integers(1, 7),
    st.integers(1, 200),
    st.integers(0, 20),
    st.integers(0, 40),
)
def test_every_record_of_the_range_is_decoded_whatever_the_rooms(
    batches: list[tuple[list[Record], str, int]], rows: int, size: int, start: int, stop: int
) -> None:
    data, expected, offset = b"", [], 0
    for records, codec, gap in batches:
        data += batch_at(offset, records, codec=codec)
        for number, record in enumerate(records):
            if start <= offset + number < stop:
                headers = [(name.encode(), value) for name, value in record.headers] or None
                expected.append((offset + number, record.timestamp_ms * 1000, 0, record.key, record.value, headers))
        offset += len(records) + gap
    for kernel in BOTH:
        assert decoded(kernel, data, start, stop, rows=rows, size=size) == expected


@given(st.data())
def test_damaged_batches_are_malformed_and_never_more(data: st.DataObject) -> None:
    records = [Record(0, 5, b"key", b"value", (("a", b"b"),)), Record(0, 6, None, b"x" * 30)]
    good = batch_at(0, records, codec=data.draw(st.sampled_from(["", "gzip"])))
    bad = bytearray(good)
    for at, byte in data.draw(st.lists(st.tuples(st.integers(0, len(good) - 1), st.integers(0, 255)), min_size=1, max_size=4)):
        bad[at] = byte
    outcomes = []
    for kernel in BOTH:
        # Without the check of the checksum, which would hide what the records do.
        decoder = kernel.BatchDecoder(0, FOREVER, gunzip, False, False)
        columns = Columns(kernel)
        try:
            decoder.feed(bytes(bad))
            columns.decode(decoder)
            outcomes.append((columns.rows, decoder.next_offset, ""))
        except MalformedBatchError as error:
            outcomes.append(([], 0, str(error)))
    assert outcomes[0] == outcomes[1]


def test_a_changed_byte_does_not_match_the_checksum(kernel: Any) -> None:
    damaged = bytearray(batch_at(0, [Record(0, 0, None, b"value")]))
    damaged[-2] ^= 1
    with pytest.raises(MalformedBatchError, match="checksum"):
        decoded(kernel, bytes(damaged))


def test_a_batch_of_an_old_format_is_refused(kernel: Any) -> None:
    old = bytearray(batch_at(0, [Record(0, 0, None, b"value")]))
    old[16] = 1
    with pytest.raises(MalformedBatchError, match="format 1"):
        decoded(kernel, bytes(old))


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch(kernel: Any) -> None:
    first, second = (batch_at(offset, [Record(0, 0, None, b"v")]) for offset in (0, 1))
    for end in range(len(second)):
        decoder = kernel.BatchDecoder(0, FOREVER, gunzip)
        decoder.feed(first + second[:end])
        columns = Columns(kernel)
        columns.decode(decoder)
        assert [row[0] for row in columns.rows] == [0]
        assert (decoder.next_offset, decoder.used) == (1, len(first))
        assert kernel.find_end(first + second[:end]) == (1, len(first))


def test_records_of_append_time_have_that_of_their_batch(kernel: Any) -> None:
    stamped = batch_at(0, [Record(0, 5, None, b"a"), Record(0, 9, None, b"b")], attributes=0x08)
    assert [row[1:3] for row in decoded(kernel, stamped)] == [(9000, 1), (9000, 1)]


def test_a_time_that_microseconds_cannot_hold_is_the_latest_they_can(kernel: Any) -> None:
    far = batch_at(0, [Record(0, (1 << 63) - 1, None, b"a")])
    assert decoded(kernel, far)[0][1] == 9223372036854775000


def test_markers_are_never_rows(kernel: Any) -> None:
    data = batch_at(0, [Record(0, 0, None, b"a")], attributes=0x10, producer_id=7) + marker_at(1, COMMIT, 7)
    decoder = kernel.BatchDecoder(0, FOREVER, gunzip)
    decoder.feed(data)
    columns = Columns(kernel)
    columns.decode(decoder)
    assert [row[0] for row in columns.rows] == [0]
    assert decoder.next_offset == 2


@pytest.mark.parametrize(("committed", "expected"), [(True, [2, 4, 6]), (False, [0, 1, 2, 4, 6])])
def test_aborted_transactions_are_left_out_if_asked(kernel: Any, committed: bool, expected: list[int]) -> None:
    def of(offset: int, producer_id: int) -> bytes:
        return batch_at(offset, [Record(0, 0, None, b"v")], attributes=0x10, producer_id=producer_id)

    plain = batch_at(4, [Record(0, 0, None, b"v")])
    # Producer 7 aborts twice in a row but for what it commits at last; producer 8 commits.
    data = of(0, 7) + of(1, 7) + of(2, 8) + marker_at(3, ABORT, 7) + plain + marker_at(5, COMMIT, 8) + of(6, 7)
    decoder = kernel.BatchDecoder(0, FOREVER, gunzip, committed)
    decoder.feed(data, [(7, 0)])
    columns = Columns(kernel)
    columns.decode(decoder)
    assert [row[0] for row in columns.rows] == expected


def test_a_transaction_aborted_after_it_began_in_an_earlier_fetch_is_left_out(kernel: Any) -> None:
    decoder = kernel.BatchDecoder(0, FOREVER, gunzip, True)
    columns = Columns(kernel)
    for data in (
        batch_at(0, [Record(0, 0, None, b"v")], attributes=0x10, producer_id=7),
        batch_at(1, [Record(0, 0, None, b"w")], attributes=0x10, producer_id=7) + marker_at(2, ABORT, 7),
    ):
        decoder.feed(data, [(7, 0)])
        columns.decode(decoder)
    assert columns.rows == []
    assert decoder.next_offset == 3


def test_nothing_after_the_end_of_the_range_is_opened(kernel: Any) -> None:
    good = batch_at(0, [Record(0, 0, None, b"a"), Record(0, 0, None, b"b")])
    assert [row[0] for row in decoded(kernel, good + bytes(61), 0, 1)] == [0]


def test_wrapped_values_read_as_one_text(kernel: Any) -> None:
    data = batch_at(0, [Record(0, 0, None, b"{}"), Record(0, 0, None, None), Record(0, 0, None, b"1")])
    offsets, text = np.zeros(4, np.int32), np.zeros(60, np.uint8)
    values = kernel.OctetsRoom(offsets, np.zeros(1, np.uint8), text, (b"<", b">", b"null"))
    numbers = (np.empty(3, np.int64), np.empty(3, np.int64), np.empty(3, np.int32))
    decoder = kernel.BatchDecoder(0, FOREVER, gunzip)
    decoder.feed(data)
    assert not decoder.fill(kernel.ArrowRoom(numbers, None, values))
    assert text[: values.used].tobytes() == b"<{}><null><1>"
    assert offsets.tolist() == [0, 4, 10, 13]


def test_headers_that_a_gateway_keeps_for_itself_are_left_out(kernel: Any) -> None:
    headers = [("ydb.seqno", b"1"), ("color", b"red"), ("ydb", b""), ("penstock.size", b"5")]
    records = [
        Record(0, 0, None, b"a", tuple(headers)),
        Record(0, 0, None, b"b", (("ydb.seqno", b"2"),)),
        Record(0, 0, None, b"c"),
    ]
    for attributes, own in ((0, ()), (FROM_YDB, ("ydb.",)), (FROM_YT, ("penstock.",)), (FROM_STREAMS, ("penstock.",))):
        rows = decoded(kernel, batch_at(0, records, attributes=attributes))
        expected = [
            [(name.encode(), value) for name, value in record.headers if not name.startswith(own)] or None for record in records
        ]
        assert [row[5] for row in rows] == expected
