"""All topics of a broker as tables or views: only Java classes can be catalogs of Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Final

from penstock.spark.columns import default_schema
from penstock.spark.errors import OptionError
from penstock.spark.kafka_options import planning_client
from penstock.spark.options import read_options
from penstock.spark.plain_errors import plain_errors
from penstock.spark.table_options import column_comment, refuse_secrets
from penstock.spark.value_formats import value_type_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SESSION_CATALOG: Final = "spark.sql.catalog.spark_catalog"


def catalog(
    spark: SparkSession,
    brokers: str = "127.0.0.1:9092",
    *,
    database: str | None = None,
    options: Mapping[str, str] | None = None,
    pattern: str = r"(?!__).*",
) -> dict[str, str]:
    """Make a table in the database, without one a global temporary view, of every topic whose whole name matches, and return the
    topics by their names: `penstock.orders`. Characters that SQL does not take in a name become `_`. Called again it adds the
    topics that are new."""
    given = {"kafka.bootstrap.servers": brokers, **(options or {})}
    checked = read_options({**given, "subscribePattern": pattern}, "batch")
    with plain_errors(checked.client), closing(planning_client(checked.client)) as client:
        topics = _named([name for name in sorted(client.known_topics(None)) if re.fullmatch(pattern, name)])
    if database is not None:
        refuse_secrets(given)
        return make_tables(spark, database, topics, given)
    database = spark.conf.get("spark.sql.globalTempDatabase", "global_temp")
    for name, topic in topics.items():
        reader = spark.read.format("penstock").options(**given, subscribe=topic)
        if checked.value_format is None:
            reader = reader.schema(default_schema(checked, None))  # known: Spark need not ask a Python process for each
        reader.load().createOrReplaceGlobalTempView(name)
    return {f"{database}.{name}": topic for name, topic in topics.items()}


def _named(topics: list[str]) -> dict[str, str]:
    """Topics by names that SQL takes."""
    named: dict[str, str] = {}
    for topic in topics:
        name = re.sub(r"\W", "_", topic, flags=re.ASCII)
        if name in named:
            raise OptionError(f"topics {named[name]!r} and {topic!r} would both be named {name}; leave one out with pattern")
        named[name] = topic
    return named


def make_tables(spark: SparkSession, database: str, topics: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Make tables of topics by their names. Returns the topics by the full names of their tables."""
    catalog_class = spark.conf.get(_SESSION_CATALOG, "builtin") or ""
    if catalog_class.endswith(".DeltaCatalog"):  # it would make the table, and every query of it would fail
        raise OptionError(
            f"{_SESSION_CATALOG} is {catalog_class}, which cannot read tables of a source in Python; make them in a session "
            "without that setting, or leave database out and use views"
        )
    spark.sql(f"CREATE DATABASE IF NOT EXISTS `{database}`")
    for name, topic in topics.items():
        options = {**given, "subscribe": topic}
        checked = read_options(options, "any")
        # With columns: Spark need not ask a Python process for those of each table.
        columns = default_schema(checked, value_type_of(checked), column_comment(options))
        spark.sql(f"CREATE TABLE IF NOT EXISTS `{database}`.`{name}` ({columns}) USING penstock")
    return {f"{database}.{name}": topic for name, topic in topics.items()}
