"""How much a micro-batch reads, as Spark says it from 4.2 on. Spark 4.1 does not: there a stream reads all that is new."""

from __future__ import annotations

from typing import Final

import pyspark

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


__all__ = [
    "HAS_READ_LIMITS",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
]
