"""Tasks that write to topics inside `mapInArrow`: each yields one row of REPORT, and the driver commits the transactions of all
tasks atomically."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.kafka.client import OpenTransaction
from penstock.spark.errors import RowError
from penstock.spark.pipelines.spec import SourceSpec
from penstock.spark.pipelines.topic_making import make_topic
from penstock.spark.task_transaction import task_transaction, writing_client
from penstock.spark.write_options import WriteOptions

TOPICS_MAX: Final = 1000
TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
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


class FanOut:
    """Creates the topics that rows name. It is pickled to tasks."""

    def __init__(self, source: SourceSpec, partitions: int | None) -> None:
        self._source = source
        self._partitions = partitions
        self._known: set[str] = set()

    def prepare(self, options: WriteOptions, rows: pa.RecordBatch) -> None:
        """Have a topic for every row. Raises RowError for names that cannot be, or that the pipeline reads."""
        for name in pc.unique(rows.column("topic")).to_pylist():
            if name in self._known:
                continue
            if name is None or not TOPIC_NAME.fullmatch(name):
                raise RowError(f"a row names {name!r} as its topic; names have letters, digits, '.', '_' and '-', at most 249")
            if name in self._source.topics or (self._source.pattern and re.fullmatch(self._source.pattern, name)):
                raise RowError(f"a row goes to topic {name!r}, which the pipeline reads: it would feed itself")
            if len(self._known) >= TOPICS_MAX:
                raise RowError(f"rows of one task go to more than {TOPICS_MAX:,} topics; is the column the right one?")
            make_topic(writing_client(options.client), name, self._partitions)
            self._known.add(name)


RowsOf = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class SendRowsTask:
    """A task that sends rows to one topic, or to those that they name; with `prepare` it makes them of its input first."""

    def __init__(self, options: WriteOptions, prefix: str, fan_out: FanOut | None = None, prepare: RowsOf | None = None) -> None:
        self._options = options
        self._prefix = prefix
        self._fan_out = fan_out
        self._prepare = prepare

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        transaction = task_transaction(self._options, self._prefix)
        for batch in batches if self._prepare is None else self._prepare(batches):
            if self._fan_out is not None and batch.num_rows:
                self._fan_out.prepare(self._options, batch)
            transaction.send(self._options.topic, batch)
        yield TaskReport(transaction.finish(), rows=transaction.rows).packed()
