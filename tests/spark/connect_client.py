"""A client of Spark Connect, in a process of its own: it starts a server in local mode, and writes and reads topics by it."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from penstock.spark import session


def write_and_read(spark: SparkSession, brokers: dict[str, str]) -> list[str]:
    """Rows to a topic, and back."""
    rows = [(b"key %d" % (number % 3), b"value %d" % number) for number in range(20)]
    made = spark.createDataFrame(rows, "key binary, value binary")
    made.write.format("penstock").options(**brokers, topic="written").mode("append").save()
    read = spark.read.format("penstock").options(**brokers, subscribe="written").load()
    return sorted(bytes(row["value"]).decode() for row in read.collect())


def copy(spark: SparkSession, brokers: dict[str, str], checkpoint: str) -> None:
    """From topic to topic, with a stream."""
    stream = spark.readStream.format("penstock").options(**brokers, subscribe="written", startingOffsets="earliest").load()
    writer = stream.select("key", "value").writeStream.format("penstock").options(**brokers, topic="copied")
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()


def main(bootstrap: str, checkpoint: str = "") -> None:
    """Write a topic, read it, and copy it if there is a place for a checkpoint; prints what was found."""
    spark = session("connect", remote="local[1]", settings={"spark.ui.enabled": "false", "spark.driver.memory": "1g"})
    brokers = {"kafka.bootstrap.servers": bootstrap}
    values = write_and_read(spark, brokers)
    if checkpoint:
        copy(spark, brokers, checkpoint)
    sys.stdout.write(json.dumps({"client": type(spark).__module__, "values": values}) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
