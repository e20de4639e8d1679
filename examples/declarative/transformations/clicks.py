"""A topic as a table that grows, and a topic of its pages, by Spark Declarative Pipelines."""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

BROKERS = os.environ.get("PENSTOCK_BOOTSTRAP", "127.0.0.1:9092")

spark = SparkSession.active()


@dp.table(comment="Clicks as they come, decoded.")
def clicks() -> DataFrame:
    """All clicks, from the beginning of the topic."""
    reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", BROKERS).option("subscribe", "clicks")
    values = reader.option("startingOffsets", "earliest").option("valueFormat", "json")
    return (
        values.option("valueSchema", "visitor STRING, at TIMESTAMP, page STRING").load().select("value.*", "offset", "partition")
    )


@dp.materialized_view(comment="How often each page was seen.")
def pages() -> DataFrame:
    """Counts by page."""
    return spark.read.table("clicks").where("page IS NOT NULL").groupBy("page").count()


dp.create_sink("checkouts", "penstock", {"kafka.bootstrap.servers": BROKERS, "topic": "checkouts"})


@dp.append_flow(target="checkouts")
def bought() -> DataFrame:
    """Visitors who bought something, to a topic of their own, each once."""
    return spark.readStream.table("clicks").where("page = '/thanks'").selectExpr("visitor AS key", "to_json(struct(*)) AS value")
