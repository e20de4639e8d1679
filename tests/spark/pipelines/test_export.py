"""Topics to tables: each record once, offsets in the table's own commit, whatever happens between."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.kafka.running_gateway import RunningGateway
from tests.spark.pipelines.table_pipelines import FORMATS, again, declare, ids, offsets, run, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("form", FORMATS)
def test_a_topic_becomes_a_table_and_the_next_run_goes_on_where_it_ended(
    spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path, form: str
) -> None:
    spec = declare(gateway.bootstrap, tmp_path, topic, form, batch={"rows_max": 60})
    send(gateway.bootstrap, topic, range(100))
    done = run(spark, spec)
    assert len(done) > 1
    assert sum(one.rows_written for one in done) == 100
    send(gateway.bootstrap, topic, range(100, 150))
    assert sum(one.rows_written for one in run(spark, again(spec))) == 50
    assert run(spark, again(spec)) == []
    assert ids(form, tmp_path / "lake") == list(range(150))
    assert offsets(form, tmp_path / "lake") == {0: list(range(75)), 1: list(range(75))}
