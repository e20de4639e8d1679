"""Uses topics from one release of Spark: scans, filters, streams, tables, the sink, pipelines, and MERGE INTO with jars of table
formats.

Called with those jars, or `none`, the address of a broker, and a prefix for names. Prints a line a step, as programs in other
languages do."""

from __future__ import annotations

import io
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from pyspark.errors import AnalysisException, PySparkException

import penstock.spark
from penstock.spark.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 1000
TABLE_FORMATS = {
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions,"
    "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "hadoop",
}
DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


class Steps:
    """The steps, in order; each goes on from the topics of those before."""

    def __init__(self, spark: SparkSession, bootstrap: str, prefix: str, directory: Path) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._topic = f"{prefix}-rows"
        self._directory = directory

    def _options(self, **more: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._bootstrap, **more}

    def _read(self, topic: str, **more: str) -> DataFrame:
        return self._spark.read.format("penstock").options(**self._options(subscribe=topic, **more)).load()

    def sink(self) -> None:
        rows = self._spark.range(ROWS).selectExpr("string(id % 10) AS key", "to_json(struct(id, id % 7 AS part)) AS value")
        rows.write.format("penstock").options(**self._options(topic=self._topic)).mode("append").save()

    def scan(self) -> None:
        decoded = self._read(self._topic, valueFormat="json", valueSchema="id BIGINT, part BIGINT")
        found = decoded.selectExpr("count(DISTINCT value.id) AS n", "sum(value.part) AS parts").first()
        assert found is not None
        assert tuple(found) == (ROWS, sum(number % 7 for number in range(ROWS))), found

    def filter(self) -> None:
        frame = self._read(self._topic).where("partition = 0 AND offset >= 5 AND offset < 15")
        assert sorted(row["offset"] for row in frame.select("offset").collect()) == list(range(5, 15))

    def stream(self) -> None:
        for _ in range(2):  # the second finds nothing new
            stream = self._spark.readStream.format("penstock").options(**self._options(subscribe=self._topic))
            frame = stream.option("startingOffsets", "earliest").load().select("key", "value")
            writer = frame.writeStream.format("penstock").options(**self._options(topic=f"{self._topic}-copy"))
            query = writer.option("checkpointLocation", str(self._directory / "checkpoint")).trigger(availableNow=True).start()
            query.awaitTermination()
        copy = self._read(f"{self._topic}-copy", **{"kafka.isolation.level": "read_committed"})
        assert copy.count() == ROWS

    def refusal(self) -> None:
        """An option that cannot be is named, whatever Spark makes of the error."""
        stream = self._spark.readStream.format("penstock").options(**self._options(subscribe=self._topic))
        columns = "key BINARY, value BINARY"
        frame = stream.option("maxOffsetsPerTrigger", "many").option("columns", "key,value").schema(columns).load()
        said = "nothing"
        try:
            frame.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()
        except PySparkException as error:
            said = str(error)
        assert "maxOffsetsPerTrigger" in said, said

    def table(self) -> None:
        self._spark.sql(f"CREATE DATABASE penstock LOCATION '{self._directory}/tables'")
        (name,) = penstock.spark.catalog(self._spark, self._bootstrap, database="penstock", pattern=self._topic)
        assert self._spark.sql(f"SELECT count(*) FROM {name}").first() == (ROWS,)
        options = f"`kafka.bootstrap.servers` '{self._bootstrap}', subscribe '{self._topic}', columns 'offset,key'"
        self._spark.sql(f"CREATE TABLE penstock.few USING penstock OPTIONS ({options})")
        assert self._spark.sql("SELECT * FROM penstock.few WHERE key = '3'").count() == ROWS // 10

    def pipeline(self) -> None:
        self._run_pipeline(
            pipeline=f"{self._topic}-sevens",
            kind="transform",
            source={"topics": [self._topic], "value": {"format": "json", "schema": "id BIGINT, part BIGINT"}},
            transform={"sql": f"SELECT id FROM `{self._topic}` WHERE part = 0"},
            target={"topic": f"{self._topic}-sevens"},
        )
        rows = self._read(f"{self._topic}-sevens", **{"kafka.isolation.level": "read_committed"}).select("value").collect()
        assert sorted(json.loads(row["value"])["id"] for row in rows) == list(range(0, ROWS, 7))

    def _run_pipeline(self, **fields: Any) -> None:
        from penstock.spark.pipelines.progress import ProgressDisplay
        from penstock.spark.pipelines.runner import Runner
        from penstock.spark.pipelines.spec import Origin
        from penstock.spark.pipelines.spec_file import Declaration
        from penstock.spark.pipelines.spec_reading import check

        origin = Origin(str(self._directory / "pipeline.yml"), {})
        spec = check(Declaration({"brokers": self._bootstrap, **fields}, origin))
        Runner(spec, lambda: self._spark, ProgressDisplay(io.StringIO()), once=True, takes_over=True).run()

    def merge_into_iceberg(self) -> None:
        self._spark.sql("CREATE TABLE lake.db.last (part BIGINT, id BIGINT) USING iceberg")
        self._merge_into("lake.db.last")

    def merge_into_delta(self) -> None:
        """Into a table that a pipeline of ours has made and filled with other ids. Its catalog reads no topics."""
        self._spark.conf.set("spark.sql.catalog.spark_catalog", DELTA_CATALOG)
        with pytest.raises(AnalysisException, match="not a valid Spark SQL Data Source"):
            self._spark.sql("SELECT * FROM penstock.few")
        with pytest.raises(OptionError, match="which cannot read tables of a source in Python"):
            penstock.spark.catalog(self._spark, self._bootstrap, database="penstock", pattern=self._topic)
        self._run_pipeline(
            pipeline=f"{self._topic}-last",
            kind="transform",
            source={"topics": [self._topic], "value": {"format": "json", "schema": "id BIGINT, part BIGINT"}},
            transform={"sql": f"SELECT part, min(id) AS id FROM `{self._topic}` GROUP BY part", "output_mode": "update"},
            target={
                "table": {"format": "delta", "location": f"file://{self._directory}/last", "merge": {"key": ["part"]}},
            },
        )
        before = self._spark.read.format("delta").load(f"{self._directory}/last")
        first = {row["part"]: row["id"] for row in before.collect()}
        assert first == {part: part for part in range(7)}, first
        self._merge_into(f"delta.`{self._directory}/last`")

    def _merge_into(self, table: str) -> None:
        changes = self._read(self._topic, valueFormat="json", valueSchema="id BIGINT, part BIGINT").selectExpr("value.*")
        changes.groupBy("part").agg({"id": "max"}).withColumnRenamed("max(id)", "id").createOrReplaceTempView("changes")
        for _ in range(2):  # the second time every row is there, and is updated
            self._spark.sql(
                f"MERGE INTO {table} AS t USING changes AS c ON t.part = c.part "
                "WHEN MATCHED THEN UPDATE SET t.id = c.id WHEN NOT MATCHED THEN INSERT (part, id) VALUES (c.part, c.id)"
            )
        found = {row["part"]: row["id"] for row in self._spark.sql(f"SELECT part, id FROM {table}").collect()}
        assert found == {number % 7: number for number in range(ROWS - 7, ROWS)}, found


def main() -> None:
    """Run them all, also after one has failed."""
    jars, bootstrap, prefix = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="penstock-spark-") as scratch:
        settings = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.sql.shuffle.partitions": "2"}
        if jars != "none":
            settings |= {"spark.jars": jars, **TABLE_FORMATS, "spark.sql.catalog.lake.warehouse": scratch}
        spark = penstock.spark.session("compat", master="local[2]", settings=settings)
        steps = Steps(spark, bootstrap, prefix, Path(scratch))
        chosen = [steps.sink, steps.scan, steps.filter, steps.stream, steps.refusal, steps.table, steps.pipeline]
        if jars != "none":
            chosen += [steps.merge_into_iceberg, steps.merge_into_delta]
        for step in chosen:
            print(_outcome(step), flush=True)
        spark.stop()


def _outcome(step: Callable[[], None]) -> str:
    try:
        step()
    except Exception as error:  # noqa: BLE001  # whatever it is, the next step is run
        said = f"{type(error).__name__} {error}".replace("\n", " ")[:500]
        return f"failed {step.__name__}: with Spark {pyspark.__version__}: {said}"
    return f"ok {step.__name__}"


if __name__ == "__main__":
    main()
