"""Revenue by shop and hour. `python generate.py --rates rates.parquet | penstock produce orders -K '|'`, then
`penstock pipeline run totals.py --once`: kill it as often as you like, every order is in the totals once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.spark.pipelines import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def totals(orders: DataFrame, rates: DataFrame) -> DataFrame:
    """Orders, joined with the rates of their currencies, in windows of an hour."""
    from pyspark.sql import functions as f

    hours = orders.join(rates, "currency").groupBy("shop", f.window("at", "1 hour").alias("hour"))
    return hours.agg(
        f.count("*").alias("orders"),
        f.sum("cents").alias("cents"),
        f.round(f.sum(f.col("cents") * f.col("euros")) / 100, 2).alias("euros"),
        f.sum(f.size("items")).alias("items"),
    ).select("shop", f.date_format("hour.start", "yyyy-MM-dd'T'HH").alias("hour"), "orders", "cents", "euros", "items")


pipeline = Pipeline(
    {
        "pipeline": "order-totals",
        "kind": "transform",
        "brokers": "127.0.0.1:9092",
        "source": {
            "topics": ["orders"],
            "value": {
                "format": "json",
                "schema": "`order` STRING, at TIMESTAMP, shop STRING, currency STRING, items ARRAY<STRING>, cents BIGINT",
            },
        },
        "transform": {
            "python": totals,
            "tables": {"rates": {"format": "parquet", "location": "rates.parquet"}},
            # Topics are read partition by partition: a restart may find one of them far ahead of the other.
            "watermark": {"column": "at", "delay": "10 minutes"},
        },
        "target": {"topic": "order-totals", "partitions": 1},
    }
)
