"""Which Spark a pipeline runs on."""

from __future__ import annotations

import os
from collections.abc import Mapping

from penstock.spark.errors import OptionError


def choose_master(given: str | None, settings: Mapping[str, str]) -> str:
    """The address of the cluster: as given, else by `spark.master`, else by the variable MASTER, else this machine. Raises
    OptionError for Spark Connect, which pipelines cannot use: they count rows with accumulators and read the plans of queries,
    and a Connect server offers neither to its clients."""
    master = given or settings.get("spark.master") or os.environ.get("MASTER") or "local[*]"
    remote = settings.get("spark.remote") or os.environ.get("SPARK_REMOTE")
    connect = master if master.startswith("sc://") else remote
    if connect is not None:
        remedy = "give" if connect == master else "unset SPARK_REMOTE or spark.remote, and give"
        raise OptionError(
            f"{connect} is Spark Connect, which does not let a client count rows and commit as a pipeline does; {remedy} the "
            "cluster's own address, such as --master spark://host:7077 or --master yarn"
        )
    return master
