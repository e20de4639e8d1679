"""Pipelines into tables: declared, run to the end of their topics, and the tables read by readers that share nothing with us."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from penstock.spark.pipelines.job import BatchResult, CheckableJob, Job
from penstock.spark.pipelines.kinds import make_job
from penstock.spark.pipelines.spec import Origin, PipelineSpec, RunSpec
from penstock.spark.pipelines.spec_file import Declaration
from penstock.spark.pipelines.spec_reading import check
from penstock.spark.tables.audit import AuditJob
from tests.spark.reads import produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMATS = ("delta", "iceberg", "parquet")
CLICKS = "id BIGINT, page STRING"


def declare(
    bootstrap: str,
    directory: Path,
    topic: str,
    form: str,
    *,
    kind: str = "export",
    table: Mapping[str, Any] | None = None,
    options: Mapping[str, str] | None = None,
    **more: Any,
) -> PipelineSpec:
    """A pipeline from a topic of clicks to a table in a directory."""
    target = {"format": form, "location": "lake", **({"name": "db.clicks"} if form == "iceberg" else {}), **(table or {})}
    fields = {
        "pipeline": f"to-{form}-{topic}",
        "kind": kind,
        "brokers": bootstrap,
        "source": {"topics": [topic], "value": {"format": "json", "schema": CLICKS}},
        "target": {"table": target, **({"options": dict(options)} if options else {})},
        **more,
    }
    return again(check(Declaration(fields, Origin(str(directory / "pipeline.yml"), {}))))


def again(spec: PipelineSpec) -> PipelineSpec:
    """The same pipeline in another run."""
    return replace(spec, run=RunSpec(uuid4().hex))


def started(spark: SparkSession, spec: PipelineSpec) -> Job:
    """A job that stands where its target says."""
    job = make_job(spec)
    assert job.plan()
    try:
        if isinstance(job, CheckableJob):
            job.check(spark)
        job.start(spark)
    except BaseException:
        job.close()
        raise
    return job


def run(spark: SparkSession, spec: PipelineSpec) -> list[BatchResult]:
    """Run a pipeline to the end of its topics; what its batches did."""
    job = started(spark, spec)
    done = []
    try:
        while (batch := job.step()) is not None:
            done.append(batch)
    finally:
        job.close()
    return done


def audit(spark: SparkSession, spec: PipelineSpec) -> str:
    """Compare, by an audit of another name; what it reports."""
    job = started(spark, again(replace(spec, name=f"audit-{spec.name}", kind="audit", transform=None)))
    assert isinstance(job, AuditJob)
    try:
        job.step()
    finally:
        job.close()
    return "\n".join(job.report)


def click(number: int) -> bytes:
    """One click."""
    return json.dumps({"id": number, "page": f"/page/{number % 7}"}).encode()


def send(bootstrap: str, topic: str, numbers: Sequence[int]) -> None:
    """Clicks, even ones to partition 0, odd ones to partition 1."""
    for partition in (0, 1):
        produce(bootstrap, topic, [click(number) for number in numbers if number % 2 == partition], partition=partition)


def read_table(form: str, location: Path) -> pa.Table:
    """All rows, by the format's own reader."""
    if form == "delta":
        from deltalake import DeltaTable

        return DeltaTable(str(location)).to_pyarrow_table()
    if form == "iceberg":
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog("penstock", type="sql", uri=f"sqlite:///{location}/catalog.db")
        try:
            return catalog.load_table("db.clicks").scan().to_arrow()
        finally:
            catalog.close()
    import duckdb

    found = duckdb.sql(f"SELECT * FROM read_parquet('{location}/**/*.parquet', union_by_name = true)")
    assert found is not None
    return found.to_arrow_table()


def ids(form: str, location: Path) -> list[int]:
    """The numbers of the clicks in a table."""
    return sorted(read_table(form, location)["id"].to_pylist())


def offsets(form: str, location: Path) -> dict[int, list[int]]:
    """The offsets in a table, by partition."""
    rows = read_table(form, location)
    found: dict[int, list[int]] = {}
    for partition, offset in zip(rows["_partition"].to_pylist(), rows["_offset"].to_pylist(), strict=True):
        found.setdefault(partition, []).append(offset)
    return {partition: sorted(some) for partition, some in found.items()}
