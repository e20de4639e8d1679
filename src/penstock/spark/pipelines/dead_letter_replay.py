"""Sends the dead letters of a pipeline back to the topics that they came from, each once.

How far that went is in a record of the broker, `pipeline/NAME/replayed`, which is committed with the rows of each part: a replay
that was interrupted, or is repeated, continues after it. Standard input: {"file": {…}} as in `DeployedFile`; standard output: a
line {"sent": …, "total": …} for each part, then {"replayed": …} or {"error": …}.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa

from penstock.core.errors import InvalidRequestError, PenstockError
from penstock.kafka.client import EARLIEST, LATEST, BlockingClient, TopicInfo, TopicPartition
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

PART_SIZE: Final = 5_000
Report = Callable[[int, int], None]

_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
_COLUMNS: Final = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("headers", pa.list_(_HEADER))])


class NothingToReplayError(InvalidRequestError):
    """A pipeline has no dead letter topic."""

    code = "no_dead_letter_topic"


def replay_dead_letters(spec: PipelineSpec, report: Report | None = None, part_size: int = PART_SIZE) -> int:
    """Send all dead letters that were not sent back yet, some at a time, and report how many of how many after each part. Returns
    how many were sent."""
    topic = spec.dead_letters.topic
    if topic is None:
        raise NothingToReplayError(f"pipeline {spec.name!r} has no dead letter topic: dead_letters is {spec.dead_letters}")
    if not spec.source.topics and spec.source.pattern is None:
        raise NothingToReplayError(
            f"pipeline {spec.name!r} reads {spec.source}: correct the files, and load them under another name"
        )
    with closing(BlockingClient(target_options(spec).client)) as client:
        return _Replay(client, spec, topic, part_size).run(report or (lambda sent, total: None))


class _Replay:
    """One replay; another one that runs at the same time makes its commit fail."""

    def __init__(self, client: BlockingClient, spec: PipelineSpec, topic: str, part_size: int) -> None:
        self._client = client
        self._spec = spec
        self._topic = topic
        self._part_size = part_size
        key = f"pipeline/{spec.name}/replayed"
        self._record = CommitRecord(client, key, f"{key}/")
        self._ends: dict[str, int] = {}  # how far each partition of the dead letter topic is replayed

    def run(self, report: Report) -> int:
        stored = json.loads(self._record.read() or b"{}")
        self._record.abort_left_behind()
        topics = self._client.known_topics([self._topic])
        if self._topic not in topics:
            return 0
        topic = topics[self._topic]
        if stored.get("id") in (None, topic.id.hex()):  # otherwise the dead letter topic was deleted and created again
            self._ends = {partition: int(end) for partition, end in stored.get("ends", {}).items()}
        ranges = list(self._ranges(topics))
        total = sum(letters.size for letters in ranges)
        sent = looked_at = 0
        report(0, total)
        for letters in ranges:
            for start in range(letters.start, letters.stop, self._part_size):
                part = letters._replace(start=start, stop=min(start + self._part_size, letters.stop))
                sent += self._replay_part(part)
                looked_at += part.size
                report(sent, total - looked_at + sent)  # markers and letters of other pipelines were counted, too
        return sent

    def _ranges(self, topics: Mapping[str, TopicInfo]) -> Iterator[OffsetRange]:
        """What is left to replay, by partition."""
        topic = topics[self._topic]
        for partition, leader in sorted(topic.leaders.items()):
            at = TopicPartition(self._topic, partition)
            first, last = (self._client.offsets({at: end}, committed=True, topics=topics)[at] for end in (EARLIEST, LATEST))
            start = max(first, self._ends.get(str(partition), 0))
            if last > start:
                yield OffsetRange(at, start, last, leader, topic.id)

    def _replay_part(self, letters: OffsetRange) -> int:
        """Send some letters and commit that together with how far it went. Returns how many were sent."""
        transactional_id = f"{self._record.prefix}{uuid4().hex[:12]}"
        transaction = TaskTransaction(self._client, target_options(self._spec), transactional_id, 0)
        self._send(transaction, letters)
        self._ends[str(letters.topic_partition.partition)] = letters.stop
        opened = transaction.finish()
        if opened is not None:
            record = {"id": letters.topic_id.hex(), "ends": self._ends}
            self._record.commit([opened], json.dumps(record, sort_keys=True).encode())
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
    try:
        spec = read_deployed(DeployedFile(**json.load(sys.stdin)["file"]))
        _tell(replayed=replay_dead_letters(spec, lambda sent, total: _tell(sent=sent, total=total)))
    except PenstockError as error:
        _tell(error=str(error))


def _tell(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
