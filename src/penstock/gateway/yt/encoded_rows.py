"""Rows as they are stored, many at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.gateway.yt.row_columns import Numbers
from penstock.kernels.json_rows import SIZE, START, WEIGHT


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Bytes with rows in them, and where each is, with its weight (json_rows.py)."""

    data: bytes
    rows: Numbers

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.rows)

    @property
    def size(self) -> int:
        """The bytes of all of them."""
        return int(self.rows[:, SIZE].sum())

    @property
    def weight(self) -> int:
        """The weight of all of them."""
        return int(self.rows[:, WEIGHT].sum())

    def value(self, place: int) -> bytes:
        """One of them."""
        start, size = self.rows[place, START], self.rows[place, SIZE]
        return self.data[start : start + size]

    def chosen(self, places: Numbers) -> EncodedRows:
        """Some of them."""
        return EncodedRows(self.data, self.rows[places])


def row_count(parts: Iterable[EncodedRows]) -> int:
    """How many rows there are in all."""
    return sum(part.count for part in parts)
