"""The exactly-once sink. Each task writes in its own transaction, invisible to consumers; the driver commits the transactions of
all tasks atomically, together with the number of the micro-batch.

Transactional ids are `spark/QUERY/PARTITION/ATTEMPT`, the same from one micro-batch to the next: a task that takes such an id
fences the task that had it before, so that transactions of lost tasks do not stay open for long. Attempts that run side by side
have different ids. Transactions that no task reported are aborted when the driver commits.

A micro-batch that is repeated finds its number in the broker's record and is taken back; a driver that was replaced finds a
record that it did not expect, or its transactions fenced.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.core.errors import PenstockError
from penstock.kafka.client import BlockingClient, OpenTransaction
from penstock.spark.commit_record import CommitRecord
from penstock.spark.kafka_options import planning_client
from penstock.spark.task_transaction import task_transaction
from penstock.spark.write_options import AT_LEAST_ONCE, EXACTLY_ONCE, WriteOptions

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from penstock.spark.registered_encoding import RegisteredEncoder

BATCH_JOB: Final = -1  # the number of a write that is no micro-batch

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TaskCommitMessage(WriterCommitMessage):
    """The result of a task: its query, and the transaction with its rows, if it had any."""

    query: str
    transaction: OpenTransaction | None
    rows: int


class _SinkTask:
    """The task of batch and stream writes. It is pickled to tasks."""

    def __init__(self, options: WriteOptions, job: str) -> None:
        self._options = options
        self._job = job

    def write(self, batches: Iterator[RecordBatch]) -> TaskCommitMessage:
        """Write the rows of one task; they are stored when this returns, and visible when the driver commits."""
        context = TaskContext.get()
        assert context is not None, "tasks run in Spark"
        query = context.getLocalProperty("sql.streaming.queryId") or self._job
        is_exact = self._options.guarantee == EXACTLY_ONCE
        transaction = task_transaction(self._options, _prefix(query) if is_exact else None)
        encoder = self._encoder()
        for batch in batches:
            transaction.send(self._options.topic, batch if encoder is None else encoder.encode(batch))
        return TaskCommitMessage(query, transaction.finish(), transaction.rows)

    def _encoder(self) -> RegisteredEncoder | None:
        """What encodes values with a schema of a registry; None if they are written as they are."""
        options = self._options
        if options.value_registry is None or options.value_subject is None:
            return None
        from penstock.spark.registered_encoding import RegisteredEncoder

        return RegisteredEncoder(options.value_registry, options.value_subject)


class BatchSink(DataSourceArrowWriter):
    """Writes a DataFrame atomically."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = _settle_guarantee(options)
        self._task = _SinkTask(self._options, job=f"job-{uuid4().hex}")

    def write(self, iterator: Iterator[RecordBatch]) -> TaskCommitMessage:
        return self._task.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        commit_rows(self._options, _task_messages(messages), BATCH_JOB)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        abort_rows(self._options, _task_messages(messages))


class StreamSink(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream exactly once."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = _settle_guarantee(options)
        self._task = _SinkTask(self._options, job=f"job-{uuid4().hex}")

    def write(self, iterator: Iterator[RecordBatch]) -> TaskCommitMessage:
        return self._task.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        commit_rows(self._options, _task_messages(messages), batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        abort_rows(self._options, _task_messages(messages))


def commit_rows(options: WriteOptions, messages: list[TaskCommitMessage], batch: int) -> None:
    """Commit the rows of all tasks atomically, unless the batch was committed before."""
    if options.guarantee == AT_LEAST_ONCE or not messages:
        return
    query = messages[0].query
    transactions = [task.transaction for task in messages if task.transaction is not None]
    with closing(BlockingClient(options.client)) as client:
        record = CommitRecord(client, f"spark/{query}", _prefix(query))
        last = _batch_of(record.read())
        if last is not None and batch <= last:
            _log.info("micro-batch %d of %s is in the topic already", batch, query)
            record.abort(transactions)
        elif transactions or batch != BATCH_JOB:
            record.commit(transactions, json.dumps({"batch": batch, "rows": sum(task.rows for task in messages)}).encode())
            if batch == BATCH_JOB:
                _forget_job(record)
        record.abort_left_behind()


def _forget_job(record: CommitRecord) -> None:
    """Delete the record of a batch job, which is never repeated under its name."""
    try:
        record.commit([], b"")
    except PenstockError as error:
        _log.info("the record of a finished job stays: %s", error)


def abort_rows(options: WriteOptions, messages: list[TaskCommitMessage]) -> None:
    """Abort the transactions of tasks. Committed transactions are not affected."""
    if options.guarantee == AT_LEAST_ONCE or not messages:
        return
    with closing(BlockingClient(options.client)) as client:
        record = CommitRecord(client, f"spark/{messages[0].query}", _prefix(messages[0].query))
        record.abort(task.transaction for task in messages if task.transaction is not None)


def _settle_guarantee(options: WriteOptions) -> WriteOptions:
    """Exactly once where the broker can commit as one what many tasks wrote; a plain Kafka cannot, and gets each row at least
    once, which is said."""
    if options.guarantee == AT_LEAST_ONCE:
        return options
    with closing(planning_client(options.client)) as client:
        if client.commits_together():
            return options
    _log.warning(
        "the broker at %s is not Penstock: rows are written at least once, and may be there twice after a failure",
        ", ".join(map(str, options.client.bootstrap)),
    )
    return replace(options, guarantee=AT_LEAST_ONCE)


def _prefix(query: str) -> str:
    return f"spark/{query}/"


def _batch_of(record: bytes | None) -> int | None:
    if record is None:
        return None
    number: int = json.loads(record)["batch"]
    return number


def _task_messages(messages: Sequence[WriterCommitMessage | None]) -> list[TaskCommitMessage]:
    return [message for message in messages if isinstance(message, TaskCommitMessage)]
