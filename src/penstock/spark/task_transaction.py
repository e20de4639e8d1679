"""How a task writes rows to topics: in a transaction of its own, which becomes visible when the driver commits it."""

from __future__ import annotations

import atexit
import time
from typing import TYPE_CHECKING

from penstock.kafka.client import BlockingClient, ClientOptions, OpenTransaction, ProducerIdentity
from penstock.spark.batch_building import BatchBuilder
from penstock.spark.batch_sender import BatchSender
from penstock.spark.write_options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa


class TaskTransaction:
    """Begins with the first row, for any number of topics. Without a transactional id rows are visible once they are stored.
    `first_partition` is where rows without a key begin, so that tasks do not all begin at the same one."""

    def __init__(self, client: BlockingClient, options: WriteOptions, transactional_id: str | None, first_partition: int) -> None:
        self._client = client
        self._options = options
        self._id = transactional_id
        self._first_partition = first_partition
        self._sender = BatchSender(client, options, transactional_id)
        self._builders: dict[str | None, BatchBuilder] = {}
        self._producer: ProducerIdentity | None = None
        self.rows = 0

    def send(self, topic: str | None, rows: pa.RecordBatch) -> None:
        """Send rows to a topic; without one each row names its own."""
        if not rows.num_rows:
            return
        if self._producer is None:
            self._producer = self._client.initialise(self._id, self._options.transaction_timeout_ms)
        if not self._options.writes_headers and "headers" in rows.schema.names:
            rows = rows.drop_columns(["headers"])
        builder = self._builders.get(topic)
        if builder is None:
            builder = self._builders[topic] = BatchBuilder(
                topic, self._options.batch_bytes, self._options.codec, self._sender.partitions_of, self._first_partition
            )
        self._sender.send(builder.build(rows, self._producer, int(time.time() * 1000)))
        self.rows += rows.num_rows

    def finish(self) -> OpenTransaction | None:
        """Wait until everything is stored; return the transaction for the driver, None if there is none to commit."""
        self._sender.finish()
        if self._id is None or self._producer is None:
            return None
        return OpenTransaction(self._id, self._producer.id, self._producer.epoch)


def task_transaction(options: WriteOptions, prefix: str | None) -> TaskTransaction:
    """Return the transaction of the running Spark task, on a connection that later tasks of this process reuse. Its id is the
    prefix, the task's partition and its attempt: a repeated task fences the one before, attempts side by side do not clash."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "tasks run in Spark"
    name = None if prefix is None else f"{prefix}{context.partitionId()}/{context.attemptNumber()}"
    return TaskTransaction(writing_client(options.client), options, name, context.partitionId())


# A process runs one task at a time, mostly of one query.
_clients: dict[ClientOptions, BlockingClient] = {}


def writing_client(options: ClientOptions) -> BlockingClient:
    """Return the client that tasks of this process write with."""
    client = _clients.get(options)
    if client is None:
        _close_clients()
        client = _clients[options] = BlockingClient(options)
    return client


@atexit.register
def _close_clients() -> None:
    while _clients:
        _clients.popitem()[1].close()
