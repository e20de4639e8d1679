"""The report of an audit, for people."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.kafka.client import TopicPartition
from penstock.spark.tables.row_digest import Digests

LISTED_MAX: Final = 20

Rows = tuple[NDArray[np.int64], Digests]


@dataclass
class PartitionReport:
    """The result of one partition: what was compared, and the differences."""

    topic_partition: TopicPartition
    start: int
    stop: int
    records: int = 0
    rows: int = 0
    outside: int = 0
    missing: list[int] = field(default_factory=list)
    extra: list[int] = field(default_factory=list)
    doubled: list[int] = field(default_factory=list)
    different: dict[int, list[str]] = field(default_factory=dict)
    dead: list[int] = field(default_factory=list)
    unexplained: int = 0
    is_compacted: bool = False

    @property
    def differs(self) -> bool:
        """Whether topic and table differ."""
        wrong_extra = self.extra and not self.is_compacted
        return bool(self.missing or wrong_extra or self.doubled or self.different or self.unexplained)

    def compare(self, records: Rows, rows: Rows, columns: list[str]) -> None:
        """Record the differences of one bucket."""
        in_topic, of_topic = _sorted(records)
        in_table, of_table = _sorted(rows)
        seen, first, counts = np.unique(in_table, return_index=True, return_counts=True)
        self.doubled += seen[counts > 1].tolist()
        self.missing += np.setdiff1d(in_topic, seen).tolist()
        self.extra += np.setdiff1d(seen, in_topic).tolist()
        both, ours, theirs = np.intersect1d(in_topic, seen, return_indices=True)
        unlike = of_topic[ours] != of_table[first[theirs]]
        for row in np.flatnonzero(unlike.any(axis=1)):
            self.different[int(both[row])] = [columns[column] for column in np.flatnonzero(unlike[row])]

    def lines(self) -> list[str]:
        """The report as lines of text."""
        span = f"offsets {self.start:,} to {self.stop - 1:,}" if self.stop > self.start else "nothing to compare"
        verdict = "differs" if self.differs else "agrees"
        lines = [f"  {self.topic_partition}: {verdict}; {span}: {self.records:,} records, {self.rows:,} rows"]
        if self.outside:
            lines.append(
                f"    {self.outside:,} rows of the table are older than the topic, or newer than the last commit: not compared"
            )
        if self.dead:
            lines.append(f"    cannot be decoded, and are not expected: {len(self.dead):,} offsets: {spans(self.dead)}")
        for what, some in (("missing in the table", self.missing), ("doubled in the table", self.doubled)):
            if some:
                lines.append(f"    {what}: {len(some):,} offsets: {spans(some)}")
        if self.extra:
            why = "compaction has removed them from the topic" if self.is_compacted else "the topic has no such records"
            lines.append(f"    only in the table: {len(self.extra):,} offsets, {why}: {spans(self.extra)}")
        for offset, columns in sorted(self.different.items())[:LISTED_MAX]:
            lines.append(f"    different at offset {offset}: {', '.join(columns)}")
        if len(self.different) > LISTED_MAX:
            lines.append(f"    different at {len(self.different) - LISTED_MAX:,} offsets more: {spans(sorted(self.different))}")
        if self.unexplained:
            lines.append(f"    {self.unexplained:,} further stretches of offsets differ; mend these first, and look again")
        return lines


def _sorted(rows: Rows) -> Rows:
    order = np.argsort(rows[0], kind="stable")
    return rows[0][order], rows[1][order]


def spans(offsets: Iterable[int]) -> str:
    """Offsets as ranges: 3, 7-9, 12."""
    runs: list[list[int]] = []
    for offset in sorted(offsets):
        if runs and offset == runs[-1][1] + 1:
            runs[-1][1] = offset
        else:
            runs.append([offset, offset])
    text = ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs[:LISTED_MAX])
    return text + (f", and {len(runs) - LISTED_MAX} more stretches" if len(runs) > LISTED_MAX else "")
