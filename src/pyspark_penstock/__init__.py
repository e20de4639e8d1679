"""Found by Spark by its name, so that `format("penstock")` works without a call to register it."""

from penstock.spark.source import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]
