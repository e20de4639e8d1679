"""Digests of rows, a column at a time and without an object per row: equal values have equal digests, independent of files,
batches and order. They detect accidents, not forgeries."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Digests = NDArray[np.uint64]

_NULL: Final = np.uint64(0x9E3779B97F4A7C15)
_ONE: Final = np.uint64(0xBF58476D1CE4E5B9)
_TWO: Final = np.uint64(0x94D049BB133111EB)


def column_digests(column: pa.Array) -> Digests:
    """A digest for each value."""
    digests = _plain(column)
    if column.null_count:
        digests[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return digests


def _plain(column: pa.Array) -> Digests:
    kind = column.type
    rows = len(column)
    if pa.types.is_null(kind):
        return np.full(rows, _NULL)
    if pa.types.is_struct(kind):
        return _combined([column_digests(child) for child in column.flatten()], rows)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return _listed(column)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        starts, octets = _octets(column)
        return _summed(octets.astype(np.uint64) + np.uint64(1), starts)
    if pa.types.is_boolean(kind):
        return _mixed(pc.fill_null(column, False).cast(pa.uint8()).to_numpy().astype(np.uint64))
    if pa.types.is_decimal(kind):
        return _plain(column.cast(pa.string()))
    if pa.types.is_floating(kind):
        wide = pc.fill_null(column, 0).cast(pa.float64()).to_numpy().astype(np.float64)
        return _mixed(wide.view(np.uint64))
    if pa.types.is_temporal(kind):
        column = column.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())
    return _mixed(pc.fill_null(column.cast(pa.int64()), 0).to_numpy().view(np.uint64))


def _listed(column: pa.Array) -> Digests:
    starts = column.offsets.to_numpy().astype(np.int64)
    if pa.types.is_map(column.type):
        items = _combined([column_digests(column.keys), column_digests(column.items)], len(column.keys))
    else:
        items = column_digests(column.values)
    return _summed(items[starts[0] : starts[-1]], starts - starts[0])


def _octets(column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    _, offsets, data = column.buffers()
    starts = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    every: Any = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return starts - starts[0], every[starts[0] : starts[-1]]


def _summed(items: Digests, starts: NDArray[np.int64]) -> Digests:
    """A digest of each list of items, which depends on their order."""
    sizes = np.diff(starts)
    digests = np.zeros(len(sizes), np.uint64)
    if len(items):
        indexes = (np.arange(len(items)) - np.repeat(starts[:-1], sizes)).astype(np.uint64)
        filled = sizes > 0
        digests[filled] = np.add.reduceat(items * (_mixed(indexes) | np.uint64(1)), starts[:-1][filled])
    return _mixed(digests + sizes.astype(np.uint64) * _ONE)


def _combined(parts: list[Digests], rows: int) -> Digests:
    digests = np.zeros(rows, np.uint64)
    for part in parts:
        digests = _mixed(digests * _TWO + part)
    return digests


def _mixed(values: Digests) -> Digests:
    """Mix the bits of a number."""
    digests = values.astype(np.uint64) + _NULL
    digests = (digests ^ (digests >> np.uint64(30))) * _ONE
    digests = (digests ^ (digests >> np.uint64(27))) * _TWO
    mixed: Digests = digests ^ (digests >> np.uint64(31))
    return mixed
