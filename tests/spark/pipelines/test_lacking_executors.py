"""Pipelines end with one sentence on a cluster whose executors lack Penstock, its compiled modules or their Python."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.running_node import PENSTOCK, environment, running_node
from tests.spark.pipelines.command import SETTINGS
from tests.spark.pipelines.test_cluster import SMALL, write_doubling
from tests.spark.reads import produce
from tests.spark.spark_cluster import spark_cluster

RUN_S = 120.0  # with the ten restarts that a pipeline has by itself it takes many minutes
SENT = "unset PYSPARK_PYTHON and spark.pyspark.python to have it sent to them"
MISSING = "/nonexistent/bin/python3"
_PYTHON = shutil.which(f"python{sys.version_info.major}.{sys.version_info.minor}", path="/usr/bin:/bin")
# Kernels that are not compiled run with Cython as they are, slowly.
_LEFT_OUT = ("penstock", "pyspark_penstock", "__editable__", "cython", "pyximport")


class LackingCluster(NamedTuple):
    """A cluster, a topic with rows, and where the Pythons for executors are made."""

    address: str
    brokers: str
    directory: Path


@pytest.fixture(scope="module")
def lacking_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LackingCluster]:
    """One cluster for all cases: none of them moves the offsets of the pipeline."""
    if _PYTHON is None:
        pytest.skip("there is no Python of this version besides the one with Penstock")
    directory = tmp_path_factory.mktemp("lacking")
    argv = ["--data-dir", str(directory / "data")]
    with running_node(directory / "log", argv) as node, spark_cluster(workers=1, cores=2) as cluster:
        node.ok("topic", "create", "numbers", "--partitions", "2")
        produce(node.bootstrap, "numbers", [b'{"n": 1}', b'{"n": 2}'])
        yield LackingCluster(cluster.address, node.bootstrap, directory)


def executors_python(directory: Path, *, has_sources: bool) -> Path:
    """A Python with all libraries of this one but Penstock, or with its sources alone; on the driver, the usual one."""
    home = directory / ("sources" if has_sources else "bare")
    packages = home / "packages"
    packages.mkdir(parents=True)
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.lower().startswith(_LEFT_OUT) and entry.suffix != ".pth":
            (packages / entry.name).symlink_to(entry)
    if has_sources:
        spec = importlib.util.find_spec("penstock")
        assert spec is not None
        assert spec.origin is not None
        for name in ("penstock", "pyspark_penstock"):
            source = Path(spec.origin).parent.with_name(name)
            shutil.copytree(source, packages / name, ignore=shutil.ignore_patterns("*.so", "__pycache__", "static"))
    launcher = home / "python"
    launcher.write_text(
        f'#!/bin/sh\ncase "$PWD" in */worker-*) ;; *) exec {sys.executable} "$@" ;; esac\n'
        f'PYTHONPATH="{packages}:$PYTHONPATH" exec {_PYTHON} "$@"\n'
    )
    launcher.chmod(0o755)
    return launcher


def run_once(cluster: LackingCluster, file: Path, python: str) -> subprocess.CompletedProcess[str]:
    """`penstock pipeline run --once` with this Python for executors, to which nothing is sent then."""
    settings = [part for setting in SETTINGS for part in ("--conf", setting)]
    command = [*PENSTOCK, "pipeline", "run", str(file), "--once", "--master", cluster.address, *settings, *SMALL]
    variables = environment({"PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"})
    return subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False, env=variables)


def assert_told(done: subprocess.CompletedProcess[str], sentence: str) -> None:
    """The command has failed, and its last line is the sentence."""
    assert done.returncode == 2, done.stderr[-3000:]
    assert done.stderr.strip().splitlines()[-1].startswith(f"penstock pipeline: {sentence}"), done.stderr[-3000:]
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_executors_without_penstock_end_a_pipeline_with_one_sentence(lacking_cluster: LackingCluster) -> None:
    file = write_doubling(lacking_cluster.directory, lacking_cluster.brokers)
    python = executors_python(lacking_cluster.directory, has_sources=False)
    assert_told(run_once(lacking_cluster, file, str(python)), f"the executors do not have Penstock: {SENT}")


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_executors_with_uncompiled_modules_end_a_pipeline_with_one_sentence(lacking_cluster: LackingCluster) -> None:
    file = write_doubling(lacking_cluster.directory, lacking_cluster.brokers)
    python = executors_python(lacking_cluster.directory, has_sources=True)
    assert_told(run_once(lacking_cluster, file, str(python)), f"Penstock is not compiled on the executors: {SENT}")


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_executors_without_the_python_end_a_pipeline_with_one_sentence(lacking_cluster: LackingCluster) -> None:
    file = write_doubling(lacking_cluster.directory, lacking_cluster.brokers)
    sentence = f"the executors cannot start the Python {MISSING} (No such file or directory)"
    assert_told(run_once(lacking_cluster, file, MISSING), sentence)
