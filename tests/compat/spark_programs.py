"""The releases of Spark that our package works with, each as a program of `make compat`. Its PySpark is installed beside our
environment and goes before the one in it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.compat.programs import CLIENTS, Program, fetch_jar, jar_path, run_tool
from tests.compat.suites import ROOT

RELEASES: Final = ("4.1.4", "4.2.1", "4.3.0")
# Jars of Delta and Iceberg for SQL's MERGE INTO; there are none yet for later releases of Spark.
MERGE_JARS: Final[Mapping[str, tuple[str, ...]]] = {
    "4.1.4": (
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",
        "io.delta:delta-spark_4.1_2.13:4.2.0",
        "io.delta:delta-storage:4.2.0",
    )
}
STEPS: Final = ("sink", "scan", "filter", "stream", "refusal", "table", "pipeline")
TIMEOUT_S: Final = 1200


def spark_programs() -> list[Program]:
    """One a release."""
    return [_program(release) for release in RELEASES]


def _program(release: str) -> Program:
    name = f"spark-{release.rpartition('.')[0]}"
    steps = (*STEPS, "merge_into_iceberg", "merge_into_delta") if release in MERGE_JARS else STEPS
    return Program(name, lambda home: _build(home, release), lambda home: _command(home, release), steps, TIMEOUT_S)


def _build(home: Path, release: str) -> None:
    site = home / f"site-{release}"
    if not (site / "pyspark" / "version.py").exists():
        shutil.rmtree(site, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(site)]
        run_tool([*pip, f"pyspark=={release}"], home)
    for artifact in MERGE_JARS.get(release, ()):
        fetch_jar(home, artifact)


def _command(home: Path, release: str) -> list[str]:
    # SPARK_HOME of the machine, if there is one, is another release.
    places = os.pathsep.join(map(str, (home / f"site-{release}", ROOT / "src")))
    jars = ",".join(str(jar_path(home, artifact)) for artifact in MERGE_JARS.get(release, ())) or "none"
    return ["env", "-u", "SPARK_HOME", f"PYTHONPATH={places}", sys.executable, str(CLIENTS / "spark" / "steps.py"), jars]
