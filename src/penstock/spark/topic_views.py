"""All topics of a broker as views: only Java classes can be catalogs of Spark, and tables keep no options for a Python source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from penstock.kafka.client import BlockingClient
from penstock.spark.columns import default_schema
from penstock.spark.errors import OptionError
from penstock.spark.options import read_options
from penstock.spark.plain_errors import plain_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def catalog(
    spark: SparkSession, brokers: str = "127.0.0.1:9092", *, options: Mapping[str, str] | None = None, pattern: str = r"(?!__).*"
) -> dict[str, str]:
    """Make a global temporary view of every topic whose whole name matches, and return the topics by the names of their views:
    `global_temp.orders`. Characters that SQL does not take in a name become `_`. Called again it adds the topics that are new."""
    given = {"kafka.bootstrap.servers": brokers, **(options or {})}
    checked = read_options({**given, "subscribePattern": pattern}, "batch")
    with plain_errors(checked.client), closing(BlockingClient(checked.client)) as client:
        topics = [name for name in sorted(client.known_topics(None)) if re.fullmatch(pattern, name)]
    database = spark.conf.get("spark.sql.globalTempDatabase", "global_temp")
    views: dict[str, str] = {}
    for topic in topics:
        name = re.sub(r"\W", "_", topic, flags=re.ASCII)
        view = f"{database}.{name}"
        if view in views:
            raise OptionError(f"topics {views[view]!r} and {topic!r} would both be the view {view}; leave one out with pattern")
        reader = spark.read.format("penstock").options(**given, subscribe=topic)
        if checked.value_format is None:
            reader = reader.schema(default_schema(checked, None))  # known: Spark need not ask a Python process for each
        reader.load().createOrReplaceGlobalTempView(name)
        views[view] = topic
    return views
