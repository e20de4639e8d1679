"""A topic as the target of a pipeline: rows of all tasks, dead letters and the new position become visible in one step."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from penstock.kafka.client import BlockingClient
from penstock.spark.pipelines.fence import Fence, target_options
from penstock.spark.pipelines.row_sending import REPORT, SendRowsTask, TaskReport, unpack_reports
from penstock.spark.pipelines.spec import PipelineSpec
from penstock.spark.pipelines.topic_making import make_topic
from penstock.spark.write_options import WriteOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHECK_EVERY_S: Final = 5.0

_log = logging.getLogger(__name__)


class TopicTarget:
    """The topic, the pipeline's record, and what connects them: one commit."""

    def __init__(self, spec: PipelineSpec) -> None:
        assert spec.target.topic is not None
        self.spec = spec
        self.topic = spec.target.topic
        self.options: WriteOptions = target_options(spec, self.topic)
        self.client = BlockingClient(self.options.client)
        self.fence = Fence(spec, self.client)
        self._checked_at = time.monotonic()

    def check(self) -> None:
        """SpecError if the broker cannot do what is asked of it."""
        if not self.client.commits_together():
            raise self.spec.fault(
                "target.topic",
                f"the broker at {self.spec.brokers} is not Penstock: it cannot commit rows and positions as one; use a table",
            )

    def open(self, *, has_dead_letters: bool) -> Mapping[str, Any]:
        """Make topics that are missing, and take the pipeline over; what its record held."""
        self.check()
        make_topic(self.client, self.topic, self.spec.target.partitions)
        if has_dead_letters and self.spec.dead_letters.topic is not None:
            make_topic(self.client, self.spec.dead_letters.topic)
        return self.fence.take()

    def send(self, rows: DataFrame) -> list[TaskReport]:
        """Send the rows of a DataFrame in transactions that stay open."""
        task = SendRowsTask(self.options, f"{self.fence.prefix}rows/")
        return unpack_reports(rows.mapInArrow(task, REPORT).collect())

    def dead_sending(self) -> tuple[WriteOptions, str]:
        """How dead letters are sent: options, and the prefix of transactional ids."""
        return replace(self.options, topic=self.spec.dead_letters.topic), self.fence.prefix

    def commit(self, reports: Sequence[TaskReport], changes: Mapping[str, Any]) -> None:
        """Make all of it visible, and note `changes` with it."""
        self.fence.commit([report.transaction for report in reports if report.transaction is not None], changes)
        self.fence.abort_left_behind()

    def idle(self) -> None:
        """There is nothing to commit; see from time to time whether another copy has taken over."""
        now = time.monotonic()
        if now - self._checked_at >= CHECK_EVERY_S:
            self._checked_at = now
            self.fence.check()

    def close(self) -> None:
        """Close the connections. The next run aborts what was sent and not committed."""
        self.client.close()
