"""Sends the dead letters of a pipeline back to the topics that they came from, each once.

How far that went is in a record of the broker, `pipeline/NAME/replayed`, which is committed with the rows: a replay that was
interrupted, or is repeated, continues after it. Standard input: {"file": {…}} as in `DeployedFile`; standard output:
{"replayed": …} or {"error": …}.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa

from penstock.core.errors import InvalidRequestError, PenstockError
from penstock.kafka.client import EARLIEST, LATEST, BlockingClient, TopicPartition
from penstock.spark.columns import Layout
from penstock.spark.commit_record import CommitRecord
from penstock.spark.options import Position, ReadOptions, Subscription
from penstock.spark.pipelines.dead_letters import HEADERS
from penstock.spark.pipelines.deployed import DeployedFile, read_deployed
from penstock.spark.pipelines.fence import target_options
from penstock.spark.pipelines.spec import PipelineSpec
from penstock.spark.range_read import read_range
from penstock.spark.ranges import OffsetRange
from penstock.spark.task_transaction import TaskTransaction

_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
_COLUMNS: Final = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("headers", pa.list_(_HEADER))])


class NothingToReplayError(InvalidRequestError):
    """A pipeline has no dead letter topic."""

    code = "no_dead_letter_topic"


def replay_dead_letters(spec: PipelineSpec) -> int:
    """Send all dead letters that were not sent back yet. Returns how many those are."""
    topic = spec.dead_letters.topic
    if topic is None:
        raise NothingToReplayError(f"pipeline {spec.name!r} has no dead letter topic: dead_letters is {spec.dead_letters}")
    if not spec.source.topics and spec.source.pattern is None:
        raise NothingToReplayError(
            f"pipeline {spec.name!r} reads {spec.source}: correct the files, and load them under another name"
        )
    with closing(BlockingClient(target_options(spec).client)) as client:
        return _Replay(client, spec, topic).run()


class _Replay:
    """One replay; another one that runs at the same time makes its commit fail."""

    def __init__(self, client: BlockingClient, spec: PipelineSpec, topic: str) -> None:
        self._client = client
        self._spec = spec
        self._topic = topic
        key = f"pipeline/{spec.name}/replayed"
        self._record = CommitRecord(client, key, f"{key}/")

    def run(self) -> int:
        stored = json.loads(self._record.read() or b"{}")
        self._record.abort_left_behind()
        options = target_options(self._spec)
        transaction = TaskTransaction(self._client, options, f"{self._record.prefix}{uuid4().hex[:12]}", 0)
        ends = {**stored.get("ends", {})}
        topics = self._client.known_topics([self._topic])
        if self._topic not in topics:
            return 0
        topic = topics[self._topic]
        if stored.get("id") not in (None, topic.id.hex()):
            ends = {}  # the dead letter topic was made again
        for partition, leader in sorted(topic.leaders.items()):
            at = TopicPartition(self._topic, partition)
            first, last = (self._client.offsets({at: end}, committed=True, topics=topics)[at] for end in (EARLIEST, LATEST))
            start = max(first, int(ends.get(str(partition), 0)))
            if last > start:
                self._send(transaction, OffsetRange(at, start, last, leader, topic.id))
            ends[str(partition)] = max(last, start)
        opened = transaction.finish()
        if opened is not None:
            self._record.commit([opened], json.dumps({"id": topic.id.hex(), "ends": ends}, sort_keys=True).encode())
        return transaction.rows

    def _send(self, transaction: TaskTransaction, letters: OffsetRange) -> None:
        reading = ReadOptions(
            self._client.options, Subscription((self._topic,)), Position(), Position(end=LATEST), is_committed=True
        )
        for batch in read_range(reading, Layout(_COLUMNS), letters):
            by_topic: dict[str, list[dict[str, Any]]] = {}
            for row in batch.to_pylist():
                headers = {header["key"]: header["value"] or b"" for header in row["headers"] or ()}
                if headers.get(HEADERS[3], b"").decode() == self._spec.name and HEADERS[0] in headers:
                    by_topic.setdefault(headers[HEADERS[0]].decode(), []).append(row)
            for topic, rows in by_topic.items():
                transaction.send(topic, _original_rows(rows))


def _original_rows(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Rows as they were, without the headers of dead letters."""
    columns = {name: [row[name] for row in rows] for name in ("key", "value")}
    return pa.RecordBatch.from_pydict(columns, schema=pa.schema([("key", pa.binary()), ("value", pa.binary())]))


def main() -> None:
    """Replay what standard input says."""
    answer: dict[str, Any]
    try:
        answer = {"replayed": replay_dead_letters(read_deployed(DeployedFile(**json.load(sys.stdin)["file"])))}
    except PenstockError as error:
        answer = {"error": str(error)}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
