"""A pipeline in a process of its own, to be killed: copies the topic `source` to the topic `target` until it is."""

from __future__ import annotations

import sys

from penstock.spark import session


def main(bootstrap: str, checkpoint: str) -> None:
    """Copy for ever; tasks that die are tried again."""
    spark = session("copier", master="local[2,4]", settings={"spark.ui.enabled": "false", "spark.log.level": "ERROR"})
    reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", bootstrap).option("subscribe", "source")
    rows = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "2000").load()
    writer = rows.select("key", "value").writeStream.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    query = writer.option("topic", "target").option("checkpointLocation", checkpoint).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
