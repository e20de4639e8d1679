"""Tasks that write to topics inside `mapInArrow`: each yields one row of REPORT, and the driver commits the transactions of all
tasks atomically."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa

from penstock.kafka.client import OpenTransaction
from penstock.spark.task_transaction import task_transaction
from penstock.spark.write_options import WriteOptions

REPORT: Final = (
    "transactional_id STRING, producer_id BIGINT, producer_epoch INT, "
    "rows_read BIGINT, rows BIGINT, dead BIGINT, first_dead STRING"
)
_REPORT: Final = pa.schema(
    [
        ("transactional_id", pa.string()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("rows_read", pa.int64()),
        ("rows", pa.int64()),
        ("dead", pa.int64()),
        ("first_dead", pa.string()),
    ]
)


class TaskReport(NamedTuple):
    """The result of a task: the transaction with its rows, None if it had none, and the number of rows."""

    transaction: OpenTransaction | None
    rows_read: int = 0
    rows: int = 0
    dead: int = 0
    first_dead: str = ""

    def packed(self) -> pa.RecordBatch:
        """As a row of REPORT."""
        where = self.transaction or (None, None, None)
        return pa.RecordBatch.from_pylist(
            [dict(zip(_REPORT.names, (*where, self.rows_read, self.rows, self.dead, self.first_dead), strict=True))],
            schema=_REPORT,
        )


def dead_letter_counts(reports: Iterable[TaskReport]) -> dict[str, Any]:
    """What a batch's result says of its dead letters."""
    dead = [report for report in reports if report.dead]
    return {"dead_letters": sum(report.dead for report in dead), "first_dead": dead[0].first_dead if dead else ""}


def unpack_reports(rows: Iterable[Iterable[object]]) -> list[TaskReport]:
    """The reports of all tasks."""
    reports = []
    for name, producer_id, epoch, rows_read, sent, dead, first in rows:
        transaction = None if name is None else OpenTransaction(name, producer_id, epoch)  # type: ignore[arg-type] # by schema
        reports.append(TaskReport(transaction, rows_read, sent, dead, first))  # type: ignore[arg-type] # by schema
    return reports


class SendRowsTask:
    """A task that sends rows to one topic."""

    def __init__(self, options: WriteOptions, prefix: str) -> None:
        self._options = options
        self._prefix = prefix

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        transaction = task_transaction(self._options, self._prefix)
        for batch in batches:
            transaction.send(self._options.topic, batch)
        yield TaskReport(transaction.finish(), rows=transaction.rows).packed()
