"""A topic as the target of a pipeline: rows of all tasks, dead letters and the new offsets are committed atomically."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from penstock.kafka.client import BlockingClient
from penstock.spark.pipelines.fence import Fence, target_options
from penstock.spark.pipelines.row_sending import REPORT, FanOut, RowsOf, SendRowsTask, TaskReport, unpack_reports
from penstock.spark.pipelines.spec import PipelineSpec
from penstock.spark.pipelines.topic_making import make_topic
from penstock.spark.write_options import WriteOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHECK_EVERY_S: Final = 5.0

_log = logging.getLogger(__name__)


class TopicTarget:
    """Writes to the topic and to the pipeline's record in one commit."""

    def __init__(self, spec: PipelineSpec) -> None:
        assert spec.target.topic is not None
        self.spec = spec
        self.topic = spec.target.topic
        self.options: WriteOptions = target_options(spec, self.topic)
        self.client = BlockingClient(self.options.client)
        self.fence = Fence(spec, self.client)
        self._checked_at = time.monotonic()

    def check(self) -> None:
        """Raise SpecError if the broker cannot commit several transactions atomically."""
        if not self.client.commits_together():
            raise self.spec.fault(
                "target.topic",
                f"the broker at {self.spec.brokers} is not Penstock: it cannot commit rows and positions as one; use a table",
            )

    def open(self, *, has_dead_letters: bool) -> Mapping[str, Any]:
        """Create missing topics and fence other runs. Returns the previous record."""
        self.check()
        if not self.spec.target.fan_out:
            make_topic(self.client, self.topic, self.spec.target.partitions)
        if has_dead_letters and self.spec.dead_letters.topic is not None:
            make_topic(self.client, self.spec.dead_letters.topic)
        return self.fence.take()

    def send(self, rows: DataFrame, prepare: RowsOf | None = None) -> list[TaskReport]:
        """Send the rows of a DataFrame, or what tasks `prepare` of them, in transactions that stay open."""
        target = self.spec.target
        fan_out = FanOut(self.spec.source, target.partitions) if target.fan_out else None
        options = self.options if fan_out is None else replace(self.options, topic=None)
        task = SendRowsTask(options, f"{self.fence.prefix}rows/", fan_out, prepare)
        return unpack_reports(rows.mapInArrow(task, REPORT).collect())

    def dead_sending(self) -> tuple[WriteOptions, str]:
        """Options and transactional id prefix for dead letters."""
        return replace(self.options, topic=self.spec.dead_letters.topic), self.fence.prefix

    def commit(self, reports: Sequence[TaskReport], changes: Mapping[str, Any]) -> None:
        """Commit the transactions together with `changes` of the record."""
        self.fence.commit([report.transaction for report in reports if report.transaction is not None], changes)
        self.fence.abort_left_behind()

    def idle(self) -> None:
        """Called when there is nothing to commit: checks now and then whether this run is fenced."""
        now = time.monotonic()
        if now - self._checked_at >= CHECK_EVERY_S:
            self._checked_at = now
            self.fence.check()

    def close(self) -> None:
        """Close the connections. The next run aborts what was sent and not committed."""
        self.client.close()
