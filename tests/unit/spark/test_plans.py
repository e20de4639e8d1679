"""The plan of a pipeline is shown before Spark is started, which takes seconds."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from penstock.spark.pipelines.kinds import make_job
from penstock.spark.pipelines.spec import KINDS
from penstock.spark.pipelines.spec_reading import read_spec

CHANGES = "source: {topics: [changes], value: {format: json, schema: 'id BIGINT'}}\n"
TABLE = "target: {table: {format: delta, location: lake}}\n"
BODIES = {
    "transform": f"{CHANGES}transform: {{sql: 'SELECT id FROM changes'}}\ntarget: {{topic: out}}\n",
    "load": "source: {files: {path: in, format: csv, schema: 'n BIGINT'}}\ntarget: {topic: out}\n",
    "export": CHANGES + TABLE,
    "compact": CHANGES + TABLE,
    "replay": CHANGES + TABLE,
    "audit": CHANGES + TABLE,
}


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process, also where another test of this one has a session."""
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(SparkSession, "_instantiatedSession", None)
    with pytest.raises(Exception, match="SESSION_OR_CONTEXT_NOT_EXISTS"):
        StructType.fromDDL("id BIGINT")


def test_every_kind_has_a_file() -> None:
    assert set(BODIES) == set(KINDS)


@pytest.mark.usefixtures("no_session")
@pytest.mark.parametrize("kind", BODIES)
def test_every_kind_shows_its_plan_without_a_session(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(f"pipeline: p\nkind: {kind}\nbrokers: 127.0.0.1:1\n{BODIES[kind]}")
    job = make_job(read_spec(str(file)))
    assert job.plan()[0] == f"pipeline p ({kind})"
    job.close()
