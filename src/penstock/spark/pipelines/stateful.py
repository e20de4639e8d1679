"""Stateful transform: a streaming query of Spark whose batches are committed to the target exactly once.

Spark's checkpoint holds the state and the offsets; the target's record holds the id of the query and the number of its last
batch. So a repeated batch is recognised, and a checkpoint that does not match the target is refused.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from penstock.kafka.client import TopicPartition
from penstock.spark.columns import TYPES
from penstock.spark.pipelines.batch_rows import BatchRows
from penstock.spark.pipelines.broker_options import reading_options
from penstock.spark.pipelines.checkpoint import Checkpoint
from penstock.spark.pipelines.errors import LostStateError, StreamFailedError
from penstock.spark.pipelines.job import BatchResult
from penstock.spark.pipelines.plan_text import plan_lines
from penstock.spark.pipelines.query import Query
from penstock.spark.pipelines.spec import PipelineSpec
from penstock.spark.pipelines.stream_targets import CommittedBatch, StreamBatch, StreamTarget, stream_target
from penstock.spark.pipelines.topic_rows import topic_rows
from penstock.spark.pipelines.topic_source import TopicSource, positions_to_json
from penstock.spark.pipelines.value_decoding import DecodeTask
from penstock.spark.pipelines.views import META, View
from penstock.spark.ranges import OffsetRange
from penstock.spark.releases import HAS_READ_LIMITS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

WAIT_S: Final = 0.2
STOP_WAIT_S: Final = 60.0
PROGRESS_WAIT_S: Final = 10.0
LOOK_EVERY_S: Final = 2.0
ROCKS_DB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class StatefulTransform:
    """A streaming query as a job: a step is a committed batch."""

    def __init__(self, spec: PipelineSpec) -> None:
        self.spec = spec
        self._target: StreamTarget | None = None
        self._committed = CommittedBatch()
        self._source = TopicSource(spec)
        self._done: queue.SimpleQueue[tuple[int, BatchResult]] = queue.SimpleQueue()
        self._told_batch = -1
        self._failure: BaseException | None = None
        self._query: StreamingQuery | None = None
        self._rows: BatchRows | None = None
        self._spark: SparkSession | None = None
        self._checkpoint: Checkpoint | None = None
        self._looked_at = float("-inf")
        self._lock = threading.Lock()  # Spark commits batches in its own thread, and a connection serves one thread

    def plan(self) -> list[str]:
        """See `Job`."""
        return plan_lines(self.spec)

    def start(self, spark: SparkSession) -> None:
        """See `Job`."""
        self._spark = spark
        self._rows = rows = BatchRows(self.spec, spark)
        query = rows.query
        assert query is not None
        tune(query.session, query.stateful_parts())
        self._target = stream_target(self.spec, rows.views, query.field)
        likeness = query.apply({view.name: view.stand_in(query.session) for view in rows.views}, is_stream=True)
        committed = self._target.open(likeness, has_dead_letters=any(view.is_decoded for view in rows.views))
        self._checkpoint, self._committed = self._find_checkpoint(spark, committed)
        self._source.begin(committed.offsets, committed.ids)
        self._target.begin(self._source.ids)
        frames = {view.name: self._stream(query.session, view, len(rows.views)) for view in rows.views}
        result = query.apply(frames, is_stream=True)
        assert self.spec.transform is not None
        writer = result.writeStream.outputMode(self.spec.transform.output_mode).queryName(self.spec.name)
        writer = writer.option("checkpointLocation", self._checkpoint.location).foreachBatch(self._take)
        trigger = self.spec.trigger
        if trigger.once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{round((trigger.every_s or 0) * 1000)} milliseconds")
        self._query = writer.start()

    def step(self) -> BatchResult | None:
        """See `Job`."""
        assert self._query is not None
        while True:
            is_active = self._query.isActive
            try:
                number, done = self._done.get(timeout=WAIT_S)
                return replace(done, late_rows=self._late_rows(number))
            except queue.Empty:
                pass
            if self._failure is not None:
                raise self._failure
            if not is_active:
                error = self._query.exception()
                if error is not None:
                    raise StreamFailedError(f"the streaming query failed: {error}") from error
                return None
            if not self.spec.trigger.once:
                return None

    def _late_rows(self, batch: int) -> int:
        """How many rows Spark has dropped up to a batch since it was asked last. It tells that shortly after the commit."""
        assert self._query is not None
        deadline = time.monotonic() + PROGRESS_WAIT_S
        while True:
            is_waiting = self._query.isActive and time.monotonic() < deadline
            told = [progress for progress in self._query.recentProgress if progress["batchId"] > self._told_batch]
            if not is_waiting or any(progress["batchId"] >= batch for progress in told):
                break
            time.sleep(WAIT_S / 4)
        self._told_batch = max((progress["batchId"] for progress in told), default=self._told_batch)
        return sum(int(part["numRowsDroppedByWatermark"]) for progress in told for part in progress["stateOperators"])

    def lag_rows(self) -> int:
        """See `Job`."""
        with self._lock:
            if time.monotonic() - self._looked_at >= LOOK_EVERY_S:
                self._looked_at = time.monotonic()
                self._source.discover_partitions()
            return self._source.lag_rows()

    def close(self) -> None:
        """See `Job`; waits for the batch in flight."""
        if self._query is not None:
            deadline = time.monotonic() + STOP_WAIT_S
            while self._query.isActive and self._query.status["isTriggerActive"] and time.monotonic() < deadline:
                if not self._done.empty() or self._failure is not None:
                    break  # a batch has just ended
                time.sleep(WAIT_S / 4)
            self._query.stop()
        self._source.close()
        if self._target is not None:
            self._target.close()

    def _find_checkpoint(self, spark: SparkSession, committed: CommittedBatch) -> tuple[Checkpoint, CommittedBatch]:
        """The checkpoint that matches the target. Raises LostStateError if it is lost or belongs to another query."""
        checkpoint = Checkpoint(spark, f"{self.spec.checkpoint}/{committed.generation}")
        if committed.query is None or checkpoint.query_id() == committed.query:
            return checkpoint, committed
        if not self.spec.run.resets_state:
            what = "is gone" if checkpoint.query_id() is None else "belongs to another query"
            raise LostStateError(
                f"the checkpoint of pipeline {self.spec.name!r} at {checkpoint.location} {what}, but {self.spec.target} holds "
                f"the output of query {committed.query}. Restore that checkpoint, or run once with --reset-state to continue "
                "from the committed offsets with empty state"
            )
        reset = replace(committed, generation=committed.generation + 1)
        return Checkpoint(spark, f"{self.spec.checkpoint}/{reset.generation}"), reset

    def _stream(self, spark: SparkSession, view: View, views: int) -> DataFrame:
        """The stream of one view. Values are decoded after reading, so that bad ones can be counted."""
        spec = self.spec
        starting = {
            topic_partition: at
            for topic_partition, at in self._source.positions.items()
            if view.topics is None or topic_partition.topic in view.topics
        }
        given = {
            "kafka.isolation.level": "read_committed",
            **reading_options(spec.options),
            "kafka.bootstrap.servers": spec.brokers,
            "failOnDataLoss": str(not spec.source.skips_lost_data).lower(),
            "includeHeaders": str(spec.source.headers).lower(),
            # Spark 4.1 has a stream read all that is new.
            **({"maxOffsetsPerTrigger": str(max(spec.rows_max // views, 1))} if HAS_READ_LIMITS else {}),
            # Used only without a checkpoint: exactly the offsets of the target's record, or of the file.
            "startingOffsets": json.dumps(positions_to_json(starting)),
        }
        if view.topics is None and spec.source.pattern is not None:
            given["subscribePattern"] = spec.source.pattern
        else:
            given["subscribe"] = ",".join(view.topics or spec.source.topics)
        meta = [*META, *(["headers"] if spec.source.headers else [])]
        given["columns"] = ",".join(("value", *meta))
        schema = ", ".join(f"`{name}` {TYPES[name]}" for name in ("value", *meta))
        raw = spark.readStream.format("penstock").options(**given).schema(schema).load()
        if not view.is_decoded:
            return raw
        assert self._rows is not None
        return raw.mapInArrow(DecodeTask(view, self._rows.counts), view.columns)

    def _take(self, rows: DataFrame, batch: int) -> None:
        """Commit one batch of the query to the target; an error is kept for `step` to raise."""
        try:
            self._commit(rows, batch)
        except BaseException as error:
            self._failure = self._failure or error
            raise

    def _commit(self, rows: DataFrame, batch: int) -> None:
        assert self._rows is not None
        assert self._query is not None
        assert self._spark is not None
        assert self._target is not None
        if self._committed.has(self._query.id, batch):
            return  # committed already: Spark was stopped before it recorded that
        self._rows.counts.value = {}
        ranges = self._ranges(batch)
        ends = {offset_range.topic_partition: offset_range.stop for offset_range in ranges}
        after = replace(
            self._committed,
            offsets={**self._source.positions, **ends},
            ids=self._source.ids,
            query=self._query.id,
            batch=batch,
        )
        done = self._target.commit(self._spark, StreamBatch(rows, ranges, self._bad_places, after))
        self._committed = after
        with self._lock:
            self._source.stand_at(ends)
        self._done.put((batch, done))

    def _bad_places(self) -> set[TopicPartition]:
        assert self._rows is not None
        return {TopicPartition(*topic_partition) for topic_partition in self._rows.counts.value}

    def _ranges(self, batch: int) -> list[OffsetRange]:
        """The ranges that a batch has read."""
        assert self._checkpoint is not None
        end, before = self._checkpoint.positions(batch), self._checkpoint.positions(batch - 1) if batch else None
        if end is None:
            return []
        starts = before.positions if before is not None else end.begun or self._source.positions
        leaders = self._source.leaders()
        return [
            OffsetRange(topic_partition, starts.get(topic_partition, 0), stop, *leaders[topic_partition])
            for topic_partition, stop in sorted(end.positions.items())
            if stop > starts.get(topic_partition, 0) and topic_partition in leaders
        ]


def tune(session: SparkSession, parts: list[str]) -> None:
    """Set the number of state partitions to the number of cores, unless it is configured."""
    if session.conf.get("spark.sql.shuffle.partitions") == "200":
        session.conf.set("spark.sql.shuffle.partitions", str(session.sparkContext.defaultParallelism))
    if any(part.startswith("TransformWithState") for part in parts):
        session.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKS_DB)


def check_stream(spec: PipelineSpec, query: Query, views: list[View]) -> None:
    """Raise SpecError if Spark cannot run the query as a stream in its output mode."""
    assert spec.transform is not None
    frame = query.apply({view.name: view.stand_in(query.session) for view in views}, is_stream=True)
    if spec.target.topic is not None:
        frame = topic_rows(spec, frame, query.field)
    else:
        check_table(spec, frame)
    jvm: Any = query.session.sparkContext._jvm
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    mode = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[spec.transform.output_mode]()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), mode)
    except Exception as error:
        # Pyspark's own errors are short; those of Java include a stack.
        reason = error.java_exception.getMessage() if hasattr(error, "java_exception") else str(error)
        raise spec.fault(query.field, str(reason).strip().splitlines()[0]) from error


def check_table(spec: PipelineSpec, frame: DataFrame) -> None:
    """Raise SpecError if the target does not accept such rows."""
    from penstock.spark.tables.errors import TableSchemaError
    from penstock.spark.tables.table import table_of
    from penstock.spark.tables.transformed import frame_schema

    table = spec.target.table
    assert table is not None
    if spec.target.fan_out:
        raise spec.fault(
            "target.table", "a query with state writes to one table; write to topics with {…}, and export each of them"
        )
    schema = frame_schema(frame)
    if table.merge is not None:
        from penstock.spark.tables.merge import TableMerge

        schema = TableMerge(spec, table.merge, schema).schema
    try:
        table_of(spec, table).check(schema)
    except TableSchemaError as error:
        raise spec.fault("target.table", str(error)) from error
