"""The source on a standalone cluster without Penstock, which is sent to it. Minutes of JVMs, so a soak test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.running_node import environment, running_node
from tests.spark.reads import produce
from tests.spark.spark_cluster import spark_cluster

SCRIPT = """
import sys
import penstock.spark

settings = {"spark.executor.memory": "600m", "spark.ui.enabled": "false"}
spark = penstock.spark.session("cluster", master=sys.argv[1], settings=settings)
reader = spark.read.format("penstock").option("kafka.bootstrap.servers", sys.argv[2]).option("subscribe", "rows")
rows = reader.option("minPartitions", "8").load()
hosts = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
stream = spark.readStream.format("penstock").option("kafka.bootstrap.servers", sys.argv[2]).option("subscribe", "rows")
query = stream.option("startingOffsets", "earliest").load().writeStream.format("noop").trigger(availableNow=True)
query = query.option("checkpointLocation", sys.argv[3]).start()
query.awaitTermination()
print("RESULT", rows.count(), rows.select("offset", "partition").distinct().count(), hosts, query.lastProgress["numInputRows"])
"""


@pytest.fixture
def master() -> Iterator[str]:
    """The address of a cluster."""
    with spark_cluster() as cluster:
        yield cluster.address


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_executors_on_two_workers_read_every_row(master: str, tmp_path: Path) -> None:
    with running_node(tmp_path / "log", ["--data-dir", str(tmp_path / "data")]) as node:
        node.ok("topic", "create", "rows", "--partitions", "4")
        for partition in range(4):
            produce(node.bootstrap, "rows", [b"%d" % number for number in range(1000)], partition=partition)
        variables = {name: value for name, value in environment().items() if name != "PYSPARK_PYTHON"}
        isolated = shutil.which(f"python{sys.version_info.major}.{sys.version_info.minor}", path="/usr/bin:/bin")
        if isolated is None:
            pytest.skip("there is no Python of this version besides the one with Penstock")
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, master, node.bootstrap, str(tmp_path / "checkpoint")],
            capture_output=True,
            text=True,
            timeout=1000,
            check=False,
            env={**variables, "SPARK_LOCAL_IP": "127.0.0.1"},
        )
    assert done.returncode == 0, done.stderr[-5000:]
    found = next(line for line in done.stdout.splitlines() if line.startswith("RESULT"))
    assert found == "RESULT 4000 4000 2 4000", (found, os.cpu_count())
