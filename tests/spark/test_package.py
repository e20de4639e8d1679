"""The package for executors: complete for what tasks import, on a Python that has nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import py4j
import pyspark
import pytest

from penstock.spark.executor_package import NAME, PYTHON, needs_package, package_settings
from penstock.spark.package import write_package

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# What is imported where a task runs.
TASKS = (
    "pyspark_penstock",
    "penstock.spark.avro_any",
    "penstock.spark.protobuf_format",
    "penstock.spark.range_read",
    "penstock.spark.sink",
    "penstock.spark.pipelines.dead_letters",
    "penstock.spark.pipelines.load_reading",
    "penstock.spark.pipelines.replay",
    "penstock.spark.pipelines.value_decoding",
    "penstock.spark.tables.audit_task",
    "penstock.spark.tables.export_task",
    "penstock.spark.tables.merge_task",
    "obstore",
)


@pytest.mark.soak
def test_tasks_find_all_they_import_in_the_package(tmp_path: Path) -> None:
    write_package(tmp_path / "package.tar")
    with tarfile.open(tmp_path / "package.tar") as archive:
        archive.extractall(tmp_path / NAME, filter="fully_trusted")
    home = Path(pyspark.__file__).parent
    # Without site-packages of its own; pyspark comes as on an executor.
    bare = tmp_path / "bare-python"
    bare.write_text(f"#!/bin/sh\nexec '{sys.executable}' -S \"$@\"\n")
    bare.chmod(0o755)
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "pyspark").symlink_to(home)
    (tmp_path / "spark" / "py4j").symlink_to(Path(py4j.__file__).parent)
    program = f"import {', '.join(TASKS)}, penstock.kernels.arrow_decode as kernel; print(kernel.__file__)"
    done = subprocess.run(
        [tmp_path / NAME / "bin" / PYTHON, "-c", program],
        env={"PATH": os.environ["PATH"], "PENSTOCK_PYTHON": str(bare), "PYTHONPATH": str(tmp_path / "spark")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path / NAME / "site-packages" / "penstock" / "kernels" / "arrow_decode.cpython"))


def test_who_says_which_python_executors_use_is_sent_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert needs_package({})
    assert not needs_package({"spark.pyspark.python": "/opt/python"})
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert not needs_package({})


def test_a_package_that_is_named_already_is_not_sent_twice() -> None:
    given = {"spark.archives": f"s3a://x/own.tar.gz,s3a://x/p.tar.gz#{NAME}", "spark.executorEnv.PATH": "/opt/bin"}
    assert package_settings(given) == {
        "spark.archives": given["spark.archives"],
        "spark.executorEnv.PATH": f"./{NAME}/bin:/opt/bin",
    }


NAMED_PYTHON = """
import os, sys
import penstock.spark
from penstock.spark.pipelines.runner import first_line

def ran_by(python):
    settings = {"spark.pyspark.python": python, "spark.ui.enabled": "false"}
    spark = penstock.spark.session(master="local[1]", settings=settings)
    try:
        return spark.sparkContext.parallelize([0], 1).map(lambda _: os.environ.get("NAMED", "another")).collect()
    except Exception as error:
        return first_line(error)
    finally:
        spark.stop()

print("RESULT", ran_by(sys.argv[1]), ran_by("no-such-python"))
"""


def test_tasks_run_in_the_python_that_a_setting_names_and_one_that_is_not_there_is_told(tmp_path: Path) -> None:
    named = tmp_path / "named-python"
    named.write_text(f"#!/bin/sh\nNAMED=yes exec '{sys.executable}' \"$@\"\n")
    named.chmod(0o755)
    variables = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    done = subprocess.run(
        [sys.executable, "-c", NAMED_PYTHON, named], capture_output=True, text=True, check=False, timeout=240, env=variables
    )
    assert "RESULT ['yes'] the executors cannot start the Python no-such-python (No such file or directory)" in done.stdout, (
        done.stderr
    )
