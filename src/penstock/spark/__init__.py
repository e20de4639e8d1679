"""Penstock for Spark: `spark.read.format("penstock")` and `spark.readStream.format("penstock")`.

The package runs inside Spark: on the driver it plans which offsets a query reads, in tasks it fetches stored batches and decodes
them into Arrow columns. It talks to brokers over the Kafka protocol only, so it reads from any Kafka as well.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.spark.session import register, session

if TYPE_CHECKING:
    from penstock.spark.query_progress import progress
    from penstock.spark.source import PenstockDataSource
    from penstock.spark.topic_views import catalog

__all__ = ["PenstockDataSource", "catalog", "progress", "register", "session"]

_LATE = {
    "PenstockDataSource": "penstock.spark.source",
    "catalog": "penstock.spark.topic_views",
    "progress": "penstock.spark.query_progress",
}


def __getattr__(name: str) -> Any:
    # Late: pyspark and pyarrow take their time, and who only names the package does not need them.
    if name in _LATE:
        return getattr(import_module(_LATE[name]), name)
    raise AttributeError(name)
