"""A Spark session with the settings that matter for reading and writing topics."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from penstock.spark.java import use_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Arrow checks every access by default; what crosses between Python and Spark has been checked already.
_JAVA_OPTIONS: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"

SETTINGS: Final[Mapping[str, str]] = {
    "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": _JAVA_OPTIONS,
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
}


def session(
    name: str = "penstock", *, master: str | None = None, remote: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session in which the format `penstock` is known: on this machine, on a cluster (`master`), or through Spark Connect
    (`remote`). `settings` go before ours. A session that is running already is taken as it is."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    chosen = {**({} if remote else SETTINGS), **(settings or {})}
    # The types of pyspark leave out that a builder is made anew by a property.
    builder: SparkSession.Builder = SparkSession.builder.appName(name)
    if remote is not None:
        builder = builder.remote(remote)
    else:
        use_java()
        if master is not None:
            builder = builder.master(master)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def register(spark: SparkSession) -> None:
    """Make the format `penstock` known to a session. Needed only where Spark does not find it by itself, by the module
    `pyspark_penstock`."""
    from penstock.spark.source import PenstockDataSource

    spark.dataSource.register(PenstockDataSource)
