"""The Spark part of the demo, in a process of its own: totals by window back into a topic, and every event into a table on disk.

It is told on standard input what to do, and says on standard output, in lines of JSON, how far it has come.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SCHEMA: Final = "id BIGINT, event STRING, customer STRING, product STRING, category STRING, country STRING, cents BIGINT"
WINDOW_MS: Final = 2000
LATE: Final = "3 seconds"
TRIGGER: Final = "1 second"
TOLD_S: Final = 0.5
CHECK, END = "check", "end"

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.log.level": "ERROR",
}


def main(bootstrap: str, events: str, totals: str, folder: Path) -> int:
    """Run both queries until told to end."""
    import penstock.spark

    spark = penstock.spark.session("penstock-demo", master="local[2]", settings=_SETTINGS)
    rows = _events(spark, bootstrap, events)
    running = Running(_write_totals(rows, bootstrap, totals, folder), _write_table(rows, folder))
    telling = threading.Thread(target=running.tell, daemon=True)
    telling.start()
    for line in sys.stdin:
        if line.strip() == CHECK:
            running.catch_up()
            _say("table", **_look_into_the_table(spark, folder))
        elif line.strip() == END:
            break
    running.stop()
    spark.stop()
    return 0


class Running:
    """The two queries."""

    def __init__(self, totals: StreamingQuery, table: StreamingQuery) -> None:
        self._queries = {"totals": totals, "table": table}
        self._ended = threading.Event()

    def tell(self) -> None:
        """Say how many events each has taken in, again and again."""
        rows = dict.fromkeys(self._queries, 0)
        last = dict.fromkeys(self._queries, -1)
        while not self._ended.wait(TOLD_S):
            for name, query in self._queries.items():
                for progress in query.recentProgress:
                    if progress.batchId > last[name]:
                        last[name] = progress.batchId
                        rows[name] += progress.numInputRows
                failure = query.exception()
                if failure is not None:
                    _say("failed", message=f"the query of the {name} failed: {str(failure).strip().splitlines()[0]}")
                    return
            _say("progress", **rows)

    def catch_up(self) -> None:
        """Wait until everything that is in the topic now has gone through both."""
        for query in self._queries.values():
            query.processAllAvailable()

    def stop(self) -> None:
        """End both."""
        self._ended.set()
        for query in self._queries.values():
            query.stop()


def _events(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    return (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("valueFormat", "json")
        .option("valueSchema", SCHEMA)
        .option("onMalformed", "fail")
        .option("columns", "value,partition,offset,timestamp")
        .load()
    )


def _write_totals(rows: DataFrame, bootstrap: str, topic: str, folder: Path) -> StreamingQuery:
    """What was seen, ordered and earned in each window, by category. A window is written once, when it is over."""
    from pyspark.sql import functions as f

    counted = (
        rows.withWatermark("timestamp", LATE)
        .groupBy(f.window("timestamp", f"{WINDOW_MS} milliseconds"), f.col("value.category").alias("category"))
        .agg(
            f.count("*").alias("events"),
            f.count_if(f.col("value.event") == "order").alias("orders"),
            f.sum("value.cents").alias("cents"),
        )
    )
    begin = f.unix_millis("window.start").alias("window_ms")
    fields = f.struct(begin, "category", "events", "orders", "cents")
    return (
        counted.select(f.col("category").alias("key"), f.to_json(fields).alias("value"))
        .writeStream.format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", topic)
        .option("checkpointLocation", str(folder / "checkpoints" / "totals"))
        .outputMode("append")
        .trigger(processingTime=TRIGGER)
        .start()
    )


def _write_table(rows: DataFrame, folder: Path) -> StreamingQuery:
    return (
        rows.select("value.*", "timestamp", "partition", "offset")
        .writeStream.format("parquet")
        .option("path", str(folder / "events.parquet"))
        .option("checkpointLocation", str(folder / "checkpoints" / "table"))
        .trigger(processingTime=TRIGGER)
        .start()
    )


def _look_into_the_table(spark: SparkSession, folder: Path) -> dict[str, int]:
    from pyspark.sql import functions as f

    table = spark.read.parquet(str(folder / "events.parquet"))
    (found,) = table.agg(
        f.count("*").alias("rows"),
        f.count_distinct("id").alias("ids"),
        f.coalesce(f.max("id"), f.lit(-1)).alias("last"),
        f.coalesce(f.sum("cents"), f.lit(0)).alias("cents"),
    ).collect()
    return {**found.asDict(), "files": len(table.inputFiles())}


def _say(event: str, **fields: object) -> None:
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])))
