"""Runs work that is not rows in Spark's tasks: one task per item, with one small result."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")


def run_tasks(spark: SparkSession, work: Callable[[int, T], R], items: Sequence[T]) -> list[R]:
    """Run `work` on every item with its number in Spark's tasks. Returns the results in order. An item may run more than once;
    only one result counts."""
    if not items:
        return []
    packed = [pickle.dumps(item) for item in items]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                answer = pickle.dumps(work(number, pickle.loads(packed[number])))
                yield pa.RecordBatch.from_arrays([pa.array([number]), pa.array([answer], pa.binary())], names=["n", "answer"])

    rows = spark.range(0, len(items), 1, len(items)).mapInArrow(run, "n BIGINT, answer BINARY").collect()
    answers = {row["n"]: pickle.loads(bytes(row["answer"])) for row in rows}
    return [answers[number] for number in range(len(items))]


def tasks_at_once(spark: SparkSession) -> int:
    """How many tasks a session runs at a time; 2 if it does not say."""
    context = getattr(spark, "sparkContext", None)
    return max(int(context.defaultParallelism), 1) if context is not None else 2
