"""Options of a table of Spark's catalog, kept in the comment of its first column."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from penstock.spark.errors import OptionError
from penstock.spark.table_options import column_comment, created_table_options, stored_options
from penstock.spark.topic_views import make_tables

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribePattern": r"a\d+'; --", "startingOffsets": '{"a1":{"0":5}}'}


def test_options_come_back_from_a_comment_that_is_safe_in_sql() -> None:
    comment = column_comment(OPTIONS)
    assert not set(comment) & set("'\"\\`;\n")
    columns = StructType([StructField("key", BinaryType(), True, {"comment": comment}), StructField("offset", LongType())])
    assert stored_options(columns) == OPTIONS


@pytest.mark.parametrize("metadata", [{}, {"comment": "of someone else"}])
def test_columns_of_others_hold_no_options(metadata: dict[str, str]) -> None:
    assert stored_options(StructType([StructField("key", BinaryType(), True, metadata)])) == {}


def test_options_of_a_table_are_told_from_properties_of_spark() -> None:
    prefixed = {f"option.{name}": value for name, value in OPTIONS.items()}
    given = {"provider": "penstock", "owner": "me", "location": "/warehouse/t", **OPTIONS, **prefixed}
    assert created_table_options(given) == OPTIONS
    assert created_table_options(OPTIONS) is None
    with pytest.raises(OptionError, match="a table needs OPTIONS"):
        created_table_options({"provider": "penstock"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kafka.sasl.password", "secret"),
        ("Kafka.Sasl.Jaas.Config", 'PlainLoginModule required username="a" password="secret";'),
        ("valueRegistry", "http://a:secret@host:8081"),
        ("valueRegistry.bearer.auth.token", "secret"),
    ],
)
def test_secrets_are_refused_without_showing_them(name: str, value: str) -> None:
    with pytest.raises(OptionError, match="would show") as refused:
        created_table_options({"provider": "penstock", f"option.{name}": value})
    assert "secret" not in str(refused.value)


def test_no_table_is_made_where_queries_of_it_would_fail() -> None:
    session = Mock()
    session.conf.get.return_value = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    with pytest.raises(OptionError, match="DeltaCatalog, which cannot read tables of a source in Python; make them in a session"):
        make_tables(session, "penstock", {"t": "t"}, OPTIONS)
    session.sql.assert_not_called()
