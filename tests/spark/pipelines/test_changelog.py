"""A changelog to a table of last values that follows it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pyarrow as pa
import pytest

from penstock.spark.pipelines.errors import SpecError
from penstock.spark.tables.changelog_task import last_rows
from penstock.spark.tables.table_target import TableTarget
from tests.e2e.kafka.running_gateway import RunningGateway
from tests.spark.pipelines.table_pipelines import FORMATS, again, declare, read_table, run, started
from tests.spark.reads import read, schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


def change(bootstrap: str, topic: str, changes: Mapping[str, Any] | list[tuple[str | None, Any]]) -> None:
    """Records by key; None deletes."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for key, page in changes.items() if isinstance(changes, Mapping) else changes:
        value = None if page is None else json.dumps({"id": len(page), "page": page})
        producer.produce(topic, key=key, value=value)
    assert producer.flush(20) == 0


def pages(form: str, directory: Path) -> dict[str, str]:
    """The table as it is, each key once."""
    if form == "parquet" and not list((directory / "lake").glob("*.parquet")):
        return {}
    rows = read_table(form, directory / "lake")
    keys = [key.decode() for key in rows["_key"].to_pylist()]
    assert len(keys) == len(set(keys)), "a key is there twice"
    return dict(zip(keys, rows["page"].to_pylist(), strict=True))


@pytest.mark.parametrize("form", FORMATS)
def test_the_table_has_the_last_value_of_each_key(
    spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path, form: str
) -> None:
    spec = declare(gateway.bootstrap, tmp_path, topic, form, kind="compact", batch={"rows_max": 120})
    change(gateway.bootstrap, topic, [(f"user-{number % 40}", f"v{number}") for number in range(200)])
    run(spark, spec)
    assert pages(form, tmp_path) == {f"user-{number % 40}": f"v{number}" for number in range(160, 200)}
    change(gateway.bootstrap, topic, {"user-3": None, "user-4": "new", "user-99": "first", "absent": None})
    change(gateway.bootstrap, topic, [("user-5", None), ("user-5", "back")])
    run(spark, again(spec))
    expected = {f"user-{number % 40}": f"v{number}" for number in range(160, 200) if number % 40 != 3}
    assert pages(form, tmp_path) == {**expected, "user-4": "new", "user-99": "first", "user-5": "back"}
    assert run(spark, again(spec)) == []
    change(gateway.bootstrap, topic, dict.fromkeys(pages(form, tmp_path)))
    run(spark, again(spec))
    assert pages(form, tmp_path) == {}


@pytest.mark.parametrize("form", ["delta", "parquet"])
def test_a_batch_that_died_before_its_commit_is_applied_once(
    spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path, *, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = declare(gateway.bootstrap, tmp_path, topic, form, kind="compact")
    change(gateway.bootstrap, topic, {f"user-{number}": "a" for number in range(30)})
    run(spark, spec)
    change(gateway.bootstrap, topic, {f"user-{number}": "b" for number in range(10)})
    with monkeypatch.context() as dying:
        dying.setattr(TableTarget, "commit", _die)
        job = started(spark, again(spec))
        with pytest.raises(ConnectionError):
            job.step()
        job.close()
    assert set(pages(form, tmp_path).values()) == {"a"}
    change(gateway.bootstrap, topic, {"user-0": None})
    run(spark, again(spec))
    assert pages(form, tmp_path) == {f"user-{number}": "b" if number < 10 else "a" for number in range(1, 30)}


def _die(*_given: object, **_named: object) -> None:
    raise ConnectionError("cut off before the commit")


def test_a_record_without_a_key_is_a_dead_letter(
    spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path
) -> None:
    spec = declare(gateway.bootstrap, tmp_path, topic, "parquet", kind="compact", dead_letters={"topic": f"{topic}-dead"})
    change(gateway.bootstrap, topic, [("a", "x"), (None, "lost")])
    done = run(spark, spec)
    assert [one.dead_letters for one in done] == [1]
    assert pages("parquet", tmp_path) == {"a": "x"}
    (letter,) = read(gateway.bootstrap, schema("value"), subscribe=f"{topic}-dead")
    assert json.loads(letter["value"]) == {"id": 4, "page": "lost"}


def test_a_table_of_last_values_is_not_cut_by_anything_else(
    spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path
) -> None:
    spec = declare(gateway.bootstrap, tmp_path, topic, "delta", kind="compact", table={"partition_by": ["page"]})
    with pytest.raises(SpecError, match="cut by its keys"):
        started(spark, spec)


def test_the_last_row_of_each_key_keeps_its_place() -> None:
    rows = pa.table({"key": ["a", "b", "a", "c", "b"], "n": [0, 1, 2, 3, 4]})
    assert last_rows(rows, ["key"]).to_pydict() == {"key": ["a", "c", "b"], "n": [2, 3, 4]}
