"""A topic as a table that grows, and topics made of it, by Spark Declarative Pipelines."""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import window

BROKERS = os.environ.get("PENSTOCK_BOOTSTRAP", "127.0.0.1:9092")

spark = SparkSession.active()


def read_clicks() -> DataFrame:
    """The topic as a stream, from its beginning; a value that cannot be decoded is null."""
    reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", BROKERS).option("subscribe", "clicks")
    values = reader.option("startingOffsets", "earliest").option("valueFormat", "json")
    return values.option("valueSchema", "visitor STRING, at TIMESTAMP, page STRING").load()


@dp.table(comment="Clicks as they come, decoded.")
def clicks() -> DataFrame:
    """A topic into a table."""
    return read_clicks().select("value.*", "partition", "offset")


@dp.materialized_view(comment="How often each page was seen.")
def pages() -> DataFrame:
    """A table that every run recomputes from another."""
    return spark.read.table("clicks").where("page IS NOT NULL").groupBy("page").count()


dp.create_sink("checkouts", "penstock", {"kafka.bootstrap.servers": BROKERS, "topic": "checkouts"})


@dp.append_flow(target="checkouts")
def bought() -> DataFrame:
    """A table into a topic: visitors who bought something, each once."""
    return spark.readStream.table("clicks").where("page = '/thanks'").selectExpr("visitor AS key", "to_json(struct(*)) AS value")


dp.create_sink("minutes", "penstock", {"kafka.bootstrap.servers": BROKERS, "topic": "clicks-by-minute"})


@dp.append_flow(target="minutes")
def counted() -> DataFrame:
    """A topic into a topic: clicks by minute, each minute once, when no click of it is to be expected any more."""
    times = read_clicks().selectExpr("value.at AS at").withWatermark("at", "5 minutes")
    counts = times.groupBy(window("at", "1 minute")).count()
    return counts.selectExpr("to_json(struct(window.start AS minute, count AS clicks)) AS value")
