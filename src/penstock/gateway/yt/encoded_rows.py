"""Many rows in their stored form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.gateway.yt.row_columns import Numbers
from penstock.kernels.json_rows import SIZE, START, WEIGHT


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Rows within one buffer, with the place, size and weight of each (json_rows.py)."""

    data: bytes
    rows: Numbers

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self.rows)

    @property
    def size(self) -> int:
        """The bytes of all rows."""
        return int(self.rows[:, SIZE].sum())

    @property
    def weight(self) -> int:
        """The weight of all rows."""
        return int(self.rows[:, WEIGHT].sum())

    def value(self, place: int) -> bytes:
        """The bytes of one row."""
        start, size = self.rows[place, START], self.rows[place, SIZE]
        return self.data[start : start + size]

    def select(self, places: Numbers) -> EncodedRows:
        """Some of the rows."""
        return EncodedRows(self.data, self.rows[places])


def row_count(parts: Iterable[EncodedRows]) -> int:
    """How many rows all parts have."""
    return sum(part.count for part in parts)
