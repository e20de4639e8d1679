"""Counts words as they come in: `penstock up`, then `python examples/spark_word_count.py`, then `penstock produce lines`."""

from __future__ import annotations

import argparse

import penstock.spark


def main() -> None:
    """Print the ten words seen most, every two seconds."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--bootstrap", default="127.0.0.1:9092", help="where the broker is")
    arguments.add_argument("--topic", default="lines", help="what to read; it must exist (penstock topic create lines)")
    options = arguments.parse_args()

    spark = penstock.spark.session("word-count", settings={"spark.sql.shuffle.partitions": "2", "spark.log.level": "ERROR"})
    lines = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", options.bootstrap)
        .option("subscribe", options.topic)
        .option("startingOffsets", "earliest")
        .option("columns", "value")
        .option("consumer", "word-count")
        .load()
    )
    words = lines.selectExpr("explode(split(CAST(value AS STRING), ' ')) AS word").groupBy("word").count()
    query = (
        words.orderBy("count", ascending=False)
        .limit(10)
        .writeStream.outputMode("complete")
        .format("console")
        .trigger(processingTime="2 seconds")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
