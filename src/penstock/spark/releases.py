"""What differs between the releases of Spark, 4.1 to 4.3. In 4.1 a stream cannot be told how much to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyspark
from pyspark.sql.pandas.types import to_arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

HAS_READ_LIMITS: Final = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 2)

if HAS_READ_LIMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:  # type: ignore[no-redef] # of Spark 4.1
        """A limit."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef] # of Spark 4.1
        """None."""

    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef] # of Spark 4.1
        """At most so many rows."""

    class ReadMinRows(ReadLimit):  # type: ignore[no-redef] # of Spark 4.1
        """At least so many rows."""

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef] # of Spark 4.1
        """A source that fixes its end when asked."""


def arrow_schema(columns: StructType) -> pa.Schema:
    """The columns as Arrow has them, with timestamps in UTC, as they always are in 4.1."""
    return to_arrow_schema(columns, timezone="UTC") if HAS_READ_LIMITS else to_arrow_schema(columns)


__all__ = [
    "HAS_READ_LIMITS",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
]
