"""Penstock for Spark: `spark.read.format("penstock")` and `spark.readStream.format("penstock")`.

The package runs inside Spark: on the driver it plans which offsets a query reads, in tasks it fetches stored batches and decodes
them into Arrow columns. It talks to brokers over the Kafka protocol only, so it reads from any Kafka as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.session import register, session

if TYPE_CHECKING:
    from penstock.spark.source import PenstockDataSource

__all__ = ["PenstockDataSource", "register", "session"]


def __getattr__(name: str) -> Any:
    # Late: pyspark and pyarrow take their time, and who only names the package does not need them.
    if name == "PenstockDataSource":
        from penstock.spark.source import PenstockDataSource

        return PenstockDataSource
    raise AttributeError(name)
