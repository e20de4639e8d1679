"""The progress of a pipeline, as stored in the last commit of its target."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.kafka.client import TopicPartition
from penstock.spark.tables.errors import TableLogError

RUN_DIGITS = 15  # of a run's id: a number that fits where formats keep 63 bits


@dataclass(frozen=True, slots=True)
class Progress:
    """The next offset of each partition, the ids of their topics, the run that committed it, and the number of the commit.
    `query` is the id of the streaming query, if there is one."""

    run: int
    batch: int
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    query: str = ""

    def to_json(self) -> dict[str, Any]:
        """The stored form."""
        offsets: dict[str, dict[str, int]] = {}
        for (topic, partition), offset in sorted(self.offsets.items()):
            offsets.setdefault(topic, {})[str(partition)] = offset
        return {
            "run": self.run,
            "batch": self.batch,
            "offsets": offsets,
            "ids": dict(sorted(self.topic_ids.items())),
            "query": self.query,
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Progress:
        """Parse the stored form."""
        try:
            offsets = {
                TopicPartition(topic, int(partition)): int(offset)
                for topic, partitions in fields["offsets"].items()
                for partition, offset in partitions.items()
            }
            return cls(int(fields["run"]), int(fields["batch"]), offsets, dict(fields["ids"]), str(fields.get("query", "")))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise TableLogError(f"the table holds {json.dumps(fields)}, which is no progress of a pipeline: {error}") from error


def run_number(run: str) -> int:
    """The id of a run as the number that tables keep."""
    return int(run.replace("-", "")[:RUN_DIGITS], 16)
