"""Creates a Spark session configured for reading and writing topics."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.spark.class_archive import archive_options, write_archive_at_exit
from penstock.spark.errors import OptionError
from penstock.spark.executor_package import needs_package, package_settings, use_on_path
from penstock.spark.handover import FORKER
from penstock.spark.java import use_java
from penstock.spark.launchers import start_forker, write_launcher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Arrow checks every access by default; what crosses between Python and Spark has been checked already.
_JAVA_OPTIONS: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"

_PYTHON_SETTING: Final = "spark.pyspark.python"

_LAUNCHER: Final = """#!/bin/sh
kept=
IFS=:
for entry in $PYTHONPATH; do
    case "$entry" in
        '{home}'/python/lib/*.zip | '{home}'/jars/*.jar) ;;
        *) kept="$kept${{kept:+:}}$entry" ;;
    esac
done
export PYTHONPATH="$kept"
case "$2 $3" in
    "pyspark.sql.streaming.python_streaming_source_runner "* | "pyspark.daemon pyspark.sql.worker."*)
        if [ -S "${forker}" ]; then exec '{python}' -I -S '{handover}' "$@"; fi ;;
esac
exec '{python}' "$@"
"""

SETTINGS: Final[Mapping[str, str]] = {
    "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": _JAVA_OPTIONS,
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
}

# Of any session, a Spark Connect server's too.
QUERY_SETTINGS: Final[Mapping[str, str]] = {"spark.sql.python.filterPushdown.enabled": "true"}

# The logs of a checkpoint on a local disk are written in half the time by this class: the usual one starts more processes for
# each file that it makes, to set its permissions. Both write a file aside and rename it, so a crash finds it whole or not at all.
LOCAL_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.python.daemon.module": "penstock.spark.worker_daemon",
}


def session(
    name: str = "penstock",
    *,
    master: str | None = None,
    remote: str | None = None,
    settings: Mapping[str, str] | None = None,
    keeps_classes: bool = False,
) -> SparkSession:
    """A session in which the format `penstock` is known: on this machine, on a cluster (`master`), whose executors are sent what
    they need, or through Spark Connect (`remote`, or a `master` that is sc://…; "local" as `remote` starts a server here).
    `settings` go before ours. A session that is running already is taken as it is. After one on this machine
    that `keeps_classes` a process makes an archive of them, with which later ones start sooner."""
    from pyspark.sql import SparkSession

    if master is not None and remote is not None:
        raise OptionError(f"master is {master} and remote is {remote}: a session has one of them")
    if master is not None and master.startswith("sc://"):
        master, remote = None, master
    # A server of Spark Connect that is started here is ours as a session on this machine is; one that runs already is as it is.
    is_served = remote is not None and not remote.startswith("local")
    if not is_served:
        use_java()
    is_local = not is_served and (remote or master or os.environ.get("MASTER") or "local").startswith("local")
    is_packaged = not is_local and not is_served and needs_package(settings or {})
    if settings and _PYTHON_SETTING in settings:
        # Spark reads the setting only where spark-submit starts the driver, not in a session of a process that runs already.
        os.environ["PYSPARK_PYTHON"] = settings[_PYTHON_SETTING]
    elif is_packaged or "PYSPARK_PYTHON" not in os.environ:
        python = _python()
        os.environ["PYSPARK_PYTHON"] = use_on_path(python) if is_packaged else python if is_local else sys.executable
        if python != sys.executable:
            start_forker()
    chosen = {
        **QUERY_SETTINGS,
        **({} if is_served else SETTINGS),
        **(_local_settings(keeps_classes=keeps_classes) if is_local else {}),
        **(settings or {}),
        **(package_settings(settings or {}) if is_packaged else {}),
    }
    # pyspark's types do not say that `builder` is a property that returns a new builder.
    builder: SparkSession.Builder = SparkSession.builder.appName(name)
    if remote is not None:
        builder = builder.remote(remote)
    elif master is not None:
        builder = builder.master(master)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if is_local and remote is None and keeps_classes:
        write_archive_at_exit(spark)
    return spark


def _local_settings(*, keeps_classes: bool) -> dict[str, str]:
    """Settings for Java and Python on this machine."""
    options = f"{_JAVA_OPTIONS} {archive_options(Path(os.environ['JAVA_HOME']), writes=keeps_classes)}".strip()
    return {**LOCAL_SETTINGS, "spark.driver.extraJavaOptions": options}


def _python() -> str:
    """The interpreter for tasks on this machine: ours, with pyspark as installed for it. Spark would put a zip archive of pyspark
    first on the path, whose modules every worker process compiles again: half a second each."""
    import pyspark

    home = Path(pyspark.__file__).parent
    if Path(os.environ.get("SPARK_HOME", home)).resolve() != home.resolve():
        return sys.executable
    text = _LAUNCHER.format(python=sys.executable, home=home, handover=Path(__file__).with_name("handover.py"), forker=FORKER)
    return str(write_launcher(f"python-{sha256(text.encode()).hexdigest()[:12]}/python", text))


def register(spark: SparkSession) -> None:
    """Make the format `penstock` known to a session. Needed only where Spark does not find it by itself, by the module
    `pyspark_penstock`."""
    from penstock.spark.source import PenstockDataSource

    spark.dataSource.register(PenstockDataSource)
