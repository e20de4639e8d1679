"""Pipelines run in the tests' own session, and what topics hold after."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.pipelines.progress import ProgressDisplay
from penstock.spark.pipelines.runner import Runner
from penstock.spark.pipelines.spec import PipelineSpec
from penstock.spark.pipelines.spec_reading import read_spec
from tests.e2e.running_node import RunningNode
from tests.spark.reads import Row, produce, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLICKS = "{topics: [TOPIC], value: {format: json, schema: 'id BIGINT, page STRING, at TIMESTAMP'}}"


def transform(source: str, sql: str, target: str, more: str = "") -> str:
    """The body of a file: the names of topics, or all of a source, to a topic, by way of a query."""
    source = source if source.startswith("{") else f"{{topics: [{source}]}}"
    return f'kind: transform\nsource: {source}\ntransform: {{sql: "{sql}"}}\ntarget: {{topic: {target}}}\n{more}'


class Runs:
    """A broker, a directory for files, and one run of a pipeline after another."""

    def __init__(self, node: RunningNode, spark: SparkSession, directory: Path) -> None:
        self.node = node
        self.spark = spark
        self.directory = directory
        self.said = ""

    def declare(self, name: str, body: str) -> PipelineSpec:
        """A pipeline's file, read."""
        return read_spec(str(self.write(name, body)))

    def write(self, name: str, body: str) -> Path:
        """A pipeline's file."""
        path = self.directory / f"{name}.yaml"
        path.write_text(f"pipeline: {name}\nbrokers: {self.node.bootstrap}\n{body}")
        return path

    def run(self, spec: PipelineSpec, **how: Any) -> dict[str, Any]:
        """Run it once, to its end; what it reported."""
        said = io.StringIO()
        runner = Runner(spec, lambda: self.spark, ProgressDisplay(said), once=True, **{"takes_over": True, **how})
        try:
            runner.run()
        finally:
            self.said = said.getvalue()
        return dict(runner.state)

    def topic(self, name: str, partitions: int = 2) -> str:
        """A new topic."""
        self.node.ok("topic", "create", name, "--partitions", str(partitions))
        return name

    def produce(self, topic: str, values: Sequence[bytes | dict[str, Any]], partition: int = 0) -> None:
        """Write values; those that are no bytes as JSON."""
        texts: list[bytes | None] = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
        produce(self.node.bootstrap, topic, texts, partition=partition)

    def rows(self, topic: str) -> list[Row]:
        """What readers of committed rows see."""
        return read(self.node.bootstrap, None, subscribe=topic, **{"kafka.isolation.level": "read_committed"})

    def values(self, topic: str) -> list[Any]:
        """The values of a topic, as JSON."""
        return [json.loads(row["value"]) for row in self.rows(topic)]
