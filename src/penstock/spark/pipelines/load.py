"""The kind load: files or a table to a topic, exactly once. Progress is stored in the commit that makes the rows visible."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.kafka.client import OpenTransaction
from penstock.spark.malformed import describe_first
from penstock.spark.pipelines.batch_rows import CountsParam
from penstock.spark.pipelines.dead_letters import letters
from penstock.spark.pipelines.errors import BadRowError
from penstock.spark.pipelines.job import BatchResult, Job
from penstock.spark.pipelines.load_files import Part
from penstock.spark.pipelines.load_inputs import FileInputs, LoadInputs, PartReading, PendingFile, TableInputs
from penstock.spark.pipelines.plan_text import plan_lines
from penstock.spark.pipelines.row_sending import REPORT, TaskReport, dead_letter_counts, unpack_reports
from penstock.spark.pipelines.spec import PipelineSpec
from penstock.spark.pipelines.state_topic import read_last_values
from penstock.spark.pipelines.topic_making import make_topic
from penstock.spark.pipelines.topic_rows import topic_rows
from penstock.spark.pipelines.topic_target import TopicTarget
from penstock.spark.task_transaction import TaskTransaction, task_transaction
from penstock.spark.write_options import WriteOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# By pipeline and file: the number of loaded parts and the state of the file, committed together with the rows.
LEDGER: Final = "__penstock_pipeline_files"
PARTS_A_TASK: Final = 2


def load_job(spec: PipelineSpec) -> Job:
    """The job of a load."""
    return LoadJob(spec)


class ReadPartsTask:
    """A task that reads the parts with the given numbers, and counts bad rows."""

    def __init__(self, reader: PartReading, parts: list[Part], counts: Any) -> None:
        self._reader = reader
        self._parts = parts
        self._counts = counts

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                rows = dead = 0
                for good, bad in self._reader.read(self._parts[number]):
                    rows += good.num_rows
                    dead += 0 if bad is None else bad.num_rows
                    yield good
                self._counts.add({self._parts[number]: (rows, dead, 0)})


class DeadPartsTask:
    """A task that reads parts again and sends their bad rows to the dead letters."""

    def __init__(self, reader: PartReading, parts: list[Part], sending: tuple[WriteOptions, str], pipeline: str) -> None:
        self._reader = reader
        self._parts = parts
        self._options, self._prefix = sending
        self._pipeline = pipeline

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        transaction = task_transaction(self._options, f"{self._prefix}dead/")
        count, first = 0, ""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for _, dead in self._reader.read(self._parts[number]):
                    if dead is not None:
                        first = first or describe_first(dead)
                        transaction.send(self._options.topic, letters(dead, self._pipeline))
                        count += dead.num_rows
        yield TaskReport(transaction.finish(), dead=count, first_dead=first).packed()


class LoadJob:
    """One run of a load."""

    def __init__(self, spec: PipelineSpec) -> None:
        self.spec = spec
        self._target = TopicTarget(spec)
        self._spark: SparkSession | None = None
        self._inputs: LoadInputs | None = None
        self._counts: Any = None
        self._ledger: dict[str, dict[str, Any]] = {}
        self._left = 0

    def plan(self) -> list[str]:
        """See `Job`."""
        return plan_lines(self.spec)

    def check(self, spark: SparkSession) -> None:
        """See `CheckableJob`."""
        self._target.check()
        inputs = self._open(spark)
        topic_rows(
            self.spec, spark.createDataFrame([], inputs.columns), "source.files" if self.spec.source.files else "source.table"
        )

    def start(self, spark: SparkSession) -> None:
        """See `Job`."""
        self._spark = spark
        self._inputs = self._open(spark)
        self._counts = spark.sparkContext.accumulator({}, CountsParam())
        self._target.open(has_dead_letters=self.spec.source.files is not None and self.spec.source.files.format != "parquet")
        make_topic(self._target.client, LEDGER, 1, {"cleanup.policy": "compact"})
        entries = read_last_values(self._target.client, LEDGER, self._key(""))
        self._ledger = {name.removeprefix(self._key("")): json.loads(value) for name, value in entries.items()}
        first = {} if self._ledger else self._inputs.snapshot()
        if first:
            self._target.commit([TaskReport(self._note(first))], {"files": len(first)})
            self._ledger = first

    def step(self) -> BatchResult | None:
        """See `Job`."""
        assert self._spark is not None
        assert self._inputs is not None
        chosen = self._choose(self._inputs)
        parts = [part for file in chosen for part in file.parts]
        if not chosen:
            self._target.idle()
            return None
        reports, rows_read = self._send(self._spark, self._inputs, parts) if parts else ([], 0)
        changes = {file.path: {**file.state, "done": file.done} for file in chosen}
        reports.append(TaskReport(self._note(changes)))
        self._target.commit(reports, {"files": len({*self._ledger, *changes})})
        self._ledger.update(changes)
        return BatchResult(rows_read, sum(report.rows for report in reports), **dead_letter_counts(reports))

    def lag_rows(self) -> int:
        """See `Job`: rows of files that have been looked into, where files tell how many they have."""
        return self._left

    def close(self) -> None:
        """See `Job`."""
        self._target.close()

    def _open(self, spark: SparkSession) -> LoadInputs:
        return FileInputs(self.spec, spark) if self.spec.source.files is not None else TableInputs(self.spec)

    def _key(self, path: str) -> str:
        return f"{self.spec.name}\0{path}"

    def _choose(self, inputs: LoadInputs) -> list[PendingFile]:
        """The next parts to load: enough for all tasks, and about as many rows as a batch may have."""
        assert self._spark is not None
        most = self._spark.sparkContext.defaultParallelism * PARTS_A_TASK
        chosen: list[PendingFile] = []
        count = rows = self._left = 0
        for file in inputs.pending(self._ledger):
            taken = 0
            for part in file.parts:
                if count >= most or (rows and rows + part.rows > self.spec.rows_max):
                    break
                taken, count, rows = taken + 1, count + 1, rows + part.rows
            self._left += sum(part.rows for part in file.parts[taken:])
            if taken or not file.parts:
                chosen.append(file.cut(taken))
            if taken < len(file.parts):
                break
        return chosen

    def _send(self, spark: SparkSession, inputs: LoadInputs, parts: list[Part]) -> tuple[list[TaskReport], int]:
        self._counts.value = {}
        task = ReadPartsTask(inputs.reader, parts, self._counts)
        frame = spark.range(0, len(parts), 1, len(parts)).mapInArrow(task, inputs.columns)
        reports = self._target.send(topic_rows(self.spec, frame, "source"))
        counts: dict[Part, tuple[int, int, int]] = self._counts.value
        bad = [part for part in parts if counts.get(part, (0, 0))[1]]
        if bad:
            reports += self._send_dead(spark, inputs, bad)
        return reports, sum(rows + dead for rows, dead, _ in counts.values())

    def _send_dead(self, spark: SparkSession, inputs: LoadInputs, parts: list[Part]) -> list[TaskReport]:
        if self.spec.dead_letters.stops:
            dead = next(bad for _, bad in inputs.reader.read(parts[0]) if bad is not None)
            row = dead.slice(0, 1).to_pylist()[0]
            raise BadRowError(
                f"row {row['offset']} of part {row['partition']} of {row['topic']} cannot be read: {row['reason']}. Nothing of "
                "this batch is committed; set dead_letters to a topic to put such rows aside, or mend the file"
            )
        task = DeadPartsTask(inputs.reader, parts, self._target.dead_sending(), self.spec.name)
        return unpack_reports(spark.range(0, len(parts), 1, len(parts)).mapInArrow(task, REPORT).collect())

    def _note(self, changes: dict[str, dict[str, Any]]) -> OpenTransaction:
        """Add the loaded parts to the ledger, in the open transaction."""
        rows = pa.RecordBatch.from_pydict(
            {
                "key": [self._key(path).encode() for path in changes],
                "value": [json.dumps(state).encode() for state in changes.values()],
            },
            schema=pa.schema([("key", pa.binary()), ("value", pa.binary())]),
        )
        name = f"{self._target.fence.prefix}ledger"
        sending = TaskTransaction(self._target.client, self._target.options, name, 0)
        sending.send(LEDGER, rows)
        transaction = sending.finish()
        assert transaction is not None, "there is something to note"
        return transaction
