"""The same script with the word kafka changed: `python -m tests.spark.same_rows BOOTSTRAP JARS TIME` compares what both read.

Prints one line of JSON a case: its name, whether schema and rows were the same, and how many rows there were.
"""

from __future__ import annotations

import json
import sys
import tempfile
from typing import TYPE_CHECKING, Any

from penstock.spark import session
from tests.spark.reads import produce

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPICS = ("rows.gzip", "rows.lz4", "rows.none", "rows.snappy", "rows.transactions", "rows.zstd")
BATCHES: dict[str, dict[str, str]] = {
    "every topic and codec": {"subscribePattern": r"rows\..*", "includeHeaders": "true"},
    "topics by name": {"subscribe": ",".join(TOPICS)},
    "single partitions": {"assign": '{"rows.none":[0,2],"rows.lz4":[1]}'},
    "offsets": {
        "subscribe": "rows.none",
        "startingOffsets": '{"rows.none":{"0":5,"1":-2,"2":0}}',
        "endingOffsets": '{"rows.none":{"0":9,"1":-1,"2":1}}',
    },
    "more tasks than partitions": {"subscribe": "rows.gzip", "minPartitions": "7"},
    "committed only": {"subscribe": "rows.transactions", "kafka.isolation.level": "read_committed"},
    "uncommitted as well": {"subscribe": "rows.transactions"},
}


def timed(time_ms: int) -> dict[str, dict[str, str]]:
    """Cases by time; the first record is from `time_ms`."""
    by_partition = json.dumps({"rows.none": {str(number): time_ms + number * 100 for number in range(3)}})
    bounds = {"startingTimestamp": str(time_ms + 50), "endingTimestamp": str(time_ms + 500)}
    return {
        "a time": {"subscribe": "rows.none,rows.zstd", **bounds},
        "times": {"subscribe": "rows.none", "startingOffsetsByTimestamp": by_partition},
    }


def main(bootstrap: str, jars: str, time_ms: str) -> None:
    """Compare every case."""
    settings = {"spark.jars": jars, "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
    spark = session("same-rows", master="local[2]", settings=settings)
    for name, options in (BATCHES | timed(int(time_ms))).items():
        ours, theirs = (spark.read.format(one).options(**_with(bootstrap, options)).load() for one in ("penstock", "kafka"))
        _report(name, _content(ours), _content(theirs))
    for limit in ("100", "7000"):
        options = {"subscribe": "rows.none,rows.lz4", "startingOffsets": "earliest", "maxOffsetsPerTrigger": limit}
        found = [_streamed(spark, one, _with(bootstrap, options)) for one in ("penstock", "kafka")]
        _report(f"a stream with at most {limit} rows a batch", *found)
    _report("a checkpoint of the connector", _continued(spark, bootstrap), ["10", "3"])
    spark.stop()


def _with(bootstrap: str, options: dict[str, str]) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap, **options}


def _content(rows: DataFrame) -> list[str]:
    return [rows.schema.json(), *sorted(map(str, rows.collect()))]


def _streamed(spark: SparkSession, source: str, options: dict[str, str]) -> list[str]:
    rows = spark.readStream.format(source).options(**options).load()
    with tempfile.TemporaryDirectory() as directory:
        writer = rows.writeStream.format("parquet").option("path", f"{directory}/rows").trigger(availableNow=True)
        query = writer.option("checkpointLocation", f"{directory}/checkpoint").start()
        query.awaitTermination()
        sizes = [progress["numInputRows"] for progress in query.recentProgress]
        return [str(sizes), *_content(spark.read.parquet(f"{directory}/rows"))]


def _continued(spark: SparkSession, bootstrap: str) -> list[str]:
    """The rows that the connector read, and those that ours read after it with the same checkpoint."""
    found = []
    with tempfile.TemporaryDirectory() as directory:
        for source, rows in (("kafka", 10), ("penstock", 3)):
            produce(bootstrap, "continued", [b"row"] * rows)
            options = _with(bootstrap, {"subscribe": "continued", "startingOffsets": "earliest"})
            writer = spark.readStream.format(source).options(**options).load().writeStream.format("noop")
            query = writer.option("checkpointLocation", directory).trigger(availableNow=True).start()
            query.awaitTermination()
            found.append(str(sum(progress["numInputRows"] for progress in query.recentProgress)))
    return found


def _report(name: str, ours: list[Any], theirs: list[Any]) -> None:
    print(json.dumps({"case": name, "same": ours == theirs, "rows": len(ours) - 1}), flush=True)  # noqa: T201 # its answer


if __name__ == "__main__":
    main(*sys.argv[1:])
