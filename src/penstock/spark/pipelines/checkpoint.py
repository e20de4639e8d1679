"""Reads the checkpoint of a streaming query: the id of the query, and the offsets of each batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.kafka.client import TopicPartition
from penstock.spark.ranges import StreamOffset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Checkpoint:
    """A checkpoint's directory, on a local disk or wherever Hadoop's file systems reach."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._spark = spark
        self.location = location

    def query_id(self) -> str | None:
        """The id of the query that it belongs to; None if there is no checkpoint."""
        text = self._read("metadata")
        return None if text is None else str(json.loads(text)["id"])

    def positions(self, batch: int) -> StreamOffset | None:
        """The end offsets of a batch in all topics; None if it was not planned. If two streams read a topic, the lower offset."""
        text = self._read(f"offsets/{batch}")
        if text is None:
            return None
        ends: dict[TopicPartition, int] = {}
        ids: dict[str, str] = {}
        begun: dict[TopicPartition, int] = {}
        for line in text.splitlines()[2:]:
            if not line.startswith("{"):
                continue
            offset_line = StreamOffset.from_json(json.loads(line))
            ids.update(offset_line.topic_ids)
            for topic_partition, offset in offset_line.positions.items():
                ends[topic_partition] = min(offset, ends.get(topic_partition, offset))
            for topic_partition, offset in (offset_line.begun or {}).items():
                begun[topic_partition] = min(offset, begun.get(topic_partition, offset))
        return StreamOffset(ends, ids, begun or None)

    def _read(self, name: str) -> str | None:
        if "://" not in self.location:
            path = Path(self.location) / name
            return path.read_text(encoding="utf-8") if path.exists() else None
        jvm: Any = self._spark.sparkContext._jvm
        path = jvm.org.apache.hadoop.fs.Path(f"{self.location}/{name}")
        files = path.getFileSystem(self._spark.sparkContext._jsc.hadoopConfiguration())
        if not files.exists(path):
            return None
        stream = files.open(path)
        try:
            return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()
