"""What tasks do that write to topics: rows go out in a transaction of the task, and the driver is told which one that is.

These run inside `mapInArrow`. A task yields one row of TOLD; the driver commits the transactions of all tasks as one.
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark import TaskContext

from penstock.kafka.client import BlockingClient, ClientOptions, OpenTransaction, ProducerIdentity
from penstock.spark.batch_building import BatchBuilder
from penstock.spark.batch_sender import BatchSender
from penstock.spark.write_options import WriteOptions

TOLD: Final = "transactional_id STRING, producer_id BIGINT, producer_epoch INT, rows_read BIGINT, rows BIGINT, dead BIGINT"
_TOLD: Final = pa.schema(
    [
        ("transactional_id", pa.string()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("rows_read", pa.int64()),
        ("rows", pa.int64()),
        ("dead", pa.int64()),
    ]
)


class Told(NamedTuple):
    """What a task has done: the transaction that holds its rows, none if it had none, and how many they are."""

    transaction: OpenTransaction | None
    rows_read: int = 0
    rows: int = 0
    dead: int = 0

    def packed(self) -> pa.RecordBatch:
        """As a row of TOLD."""
        where = self.transaction or (None, None, None)
        return pa.RecordBatch.from_pylist(
            [dict(zip(_TOLD.names, (*where, self.rows_read, self.rows, self.dead), strict=True))], schema=_TOLD
        )


def unpack_told(rows: Iterable[Iterable[object]]) -> list[Told]:
    """What all tasks have told."""
    found = []
    for name, producer_id, epoch, rows_read, sent, dead in rows:
        transaction = None if name is None else OpenTransaction(name, producer_id, epoch)  # type: ignore[arg-type] # by schema
        found.append(Told(transaction, rows_read, sent, dead))  # type: ignore[arg-type] # by schema
    return found


class TaskTransaction:
    """The transaction of one task: begun with the first row, for any number of topics."""

    def __init__(self, options: WriteOptions, prefix: str) -> None:
        context = TaskContext.get()
        assert context is not None, "tasks run in Spark"
        self._options = options
        self._turn = context.partitionId()
        self._cluster = _cluster(options.client)
        self._name = f"{prefix}{context.partitionId()}/{context.attemptNumber()}"
        self._sender = BatchSender(self._cluster, options, self._name)
        self._builders: dict[str | None, BatchBuilder] = {}
        self._producer: ProducerIdentity | None = None

    def send(self, topic: str | None, rows: pa.RecordBatch) -> None:
        """Send rows to a topic; without one they name their own."""
        if not rows.num_rows:
            return
        if self._producer is None:
            self._producer = self._cluster.initialise(self._name, self._options.transaction_timeout_ms)
        builder = self._builders.get(topic)
        if builder is None:
            builder = self._builders[topic] = BatchBuilder(
                topic, self._options.batch_bytes, self._options.codec, self._sender.partitions_of, self._turn
            )
        self._sender.send(builder.build(rows, self._producer, int(time.time() * 1000)))

    def finish(self) -> OpenTransaction | None:
        """Until everything is stored; the transaction, if there is anything in it."""
        self._sender.finish()
        return None if self._producer is None else OpenTransaction(self._name, self._producer.id, self._producer.epoch)


class SendRows:
    """A task that sends the rows it is given to one topic."""

    def __init__(self, options: WriteOptions, prefix: str) -> None:
        self._options = options
        self._prefix = prefix

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        transaction = TaskTransaction(self._options, self._prefix)
        count = 0
        for batch in batches:
            transaction.send(self._options.topic, batch)
            count += batch.num_rows
        yield Told(transaction.finish(), rows=count).packed()


# Connections outlive a task: the processes that run tasks are used for many, one after another.
_clusters: dict[ClientOptions, BlockingClient] = {}


def _cluster(options: ClientOptions) -> BlockingClient:
    found = _clusters.get(options)
    if found is None:
        _hang_up()
        found = _clusters[options] = BlockingClient(options)
    return found


@atexit.register
def _hang_up() -> None:
    while _clusters:
        _clusters.popitem()[1].close()
