"""A client of Spark Connect, in a process of its own: it starts a server in local mode, and writes and reads topics by it."""

from __future__ import annotations

import json
import os
import subprocess
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


def count_as_another_client(spark: SparkSession, bootstrap: str) -> int:
    """How many rows another process reads that names the server of this one as its master."""
    endpoint = spark.client._builder.endpoint  # type: ignore[attr-defined] # of the builder that pyspark uses by default
    own = ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "PYSPARK_PYTHON")
    variables = {name: value for name, value in os.environ.items() if name not in own}
    program = (
        "import sys\nfrom penstock.spark import session\nspark = session('another', master=sys.argv[1])\n"
        "rows = spark.read.format('penstock').option('kafka.bootstrap.servers', sys.argv[2]).option('subscribe', 'written')\n"
        "print(rows.load().count())\n"
    )
    command = [sys.executable, "-c", program, f"sc://{endpoint}", bootstrap]
    return int(subprocess.run(command, stdout=subprocess.PIPE, check=True, env=variables, timeout=300).stdout)


def main(bootstrap: str, checkpoint: str = "") -> None:
    """Write a topic, read it, also by another client, and copy it if there is a place for a checkpoint; prints what was found."""
    spark = session("connect", remote="local[1]", settings={"spark.ui.enabled": "false", "spark.driver.memory": "1g"})
    brokers = {"kafka.bootstrap.servers": bootstrap}
    values = write_and_read(spark, brokers)
    if checkpoint:
        copy(spark, brokers, checkpoint)
    counted = count_as_another_client(spark, bootstrap)
    sys.stdout.write(json.dumps({"client": type(spark).__module__, "values": values, "by_master": counted}) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
