"""Rows of Arrow columns to records: read back by another client's parser, compiled and as plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from aiokafka.partitioner import murmur2
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels import arrow_encode
from tests.kernel_forms import uncompiled

FORMS = [arrow_encode, uncompiled("arrow_encode")]

Header = tuple[bytes, bytes | None]
Row = tuple[bytes | None, bytes | None, list[Header]]

fields = st.none() | st.binary(max_size=300)
rows_of = st.lists(
    st.tuples(fields, fields, st.lists(st.tuples(st.text(max_size=5).map(str.encode), fields), max_size=3)),
    min_size=1,
    max_size=9,
)


def _column(form: Any, fields: list[bytes | None], before: int = 0) -> Any:
    """A column whose buffers hold `before` other rows first, as those of a slice do."""
    padded: list[bytes | None] = [*[b"not ours"] * before, *fields]
    offsets = np.cumsum([0] + [len(field or b"") for field in padded], dtype=np.int32)
    bits = np.packbits(np.array([field is not None for field in padded], bool), bitorder="little")
    data = b"".join(field or b"" for field in padded)
    return form.BinaryColumn(offsets, data, bits if None in padded else b"", before)


def _headers(form: Any, lists: list[list[Header]]) -> Any:
    offsets = np.cumsum([0] + [len(one) for one in lists], dtype=np.int32)
    flat = [header for one in lists for header in one]
    return form.HeaderColumn(offsets, 0, _column(form, [key for key, _ in flat]), _column(form, [value for _, value in flat]))


def _parsed(records: bytes, count: int) -> list[Any]:
    header = bytearray(61)
    header[8:12] = (49 + len(records)).to_bytes(4, "big")
    header[16] = 2
    header[23:27] = (count - 1).to_bytes(4, "big")
    header[27:43] = (1000).to_bytes(8, "big") * 2
    header[57:61] = count.to_bytes(4, "big")
    return list(DefaultRecordBatch(bytes(header) + records))


@pytest.mark.parametrize("form", FORMS, ids=["as installed", "uncompiled"])
@given(rows=rows_of, before=st.integers(0, 9), with_headers=st.booleans())
def test_another_parser_reads_the_same_rows(form: Any, rows: list[Row], before: int, with_headers: bool) -> None:
    keys = _column(form, [key for key, _, _ in rows], before)
    values = _column(form, [value for _, value, _ in rows], before)
    headers = _headers(form, [one for _, _, one in rows]) if with_headers else None
    out = bytearray(1 << 16)
    order = np.arange(len(rows), dtype=np.int64)[::-1].copy()
    end, size = form.encode_records(form.RecordColumns(keys, values, headers), order, 0, out)
    assert end == len(rows)
    found = _parsed(bytes(out[:size]), len(rows))
    assert [(one.offset, one.timestamp) for one in found] == [(at, 1000) for at in range(len(rows))]
    for one, (key, value, sent) in zip(found, reversed(rows), strict=True):
        assert (one.key, one.value) == (key, value)
        assert one.headers == ([(name.decode(), content) for name, content in sent] if with_headers else [])


@pytest.mark.parametrize("form", FORMS, ids=["as installed", "uncompiled"])
def test_what_does_not_fit_is_left_for_the_next_batch(form: Any) -> None:
    column = _column(form, [b"0123456789"] * 5)
    rows = np.arange(5, dtype=np.int64)
    out = bytearray(60)
    end, size = form.encode_records(form.RecordColumns(column, column), rows, 0, out)
    assert 0 < end < 5
    assert len(_parsed(bytes(out[:size]), end)) == end
    after, size = form.encode_records(form.RecordColumns(column, column), rows, end, out)
    assert [one.offset for one in _parsed(bytes(out[:size]), after - end)] == list(range(after - end))


@pytest.mark.parametrize("form", FORMS, ids=["as installed", "uncompiled"])
def test_a_row_larger_than_the_batch_is_not_written(form: Any) -> None:
    column = _column(form, [b"0123456789"])
    assert form.encode_records(form.RecordColumns(column, column), np.zeros(1, np.int64), 0, bytearray(10)) == (0, 0)


@pytest.mark.parametrize("form", FORMS, ids=["as installed", "uncompiled"])
@given(keys=st.lists(fields, min_size=1, max_size=20), partitions=st.integers(1, 100), before=st.integers(0, 3))
def test_partitions_are_those_other_clients_choose(form: Any, keys: list[bytes | None], partitions: int, before: int) -> None:
    chosen = np.empty(len(keys), np.int32)
    form.choose_partitions(_column(form, keys, before), partitions, partitions - 1, chosen)
    expected = [partitions - 1 if key is None else (murmur2(key) & 0x7FFFFFFF) % partitions for key in keys]
    assert chosen.tolist() == expected
