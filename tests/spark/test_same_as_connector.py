"""Drop-in equivalence: the same script with the format changed gives the same rows as Spark's own Kafka connector.

The connector comes from a Maven repository, so this is a soak test: `pytest -m soak tests/spark/test_same_as_connector.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import confluent_kafka
import pytest

from bench.spark_peer.connector import connector_jars
from tests.e2e.running_node import environment, running_node
from tests.spark import same_rows

ROOT = Path(__file__).resolve().parents[2]
CODECS = ("gzip", "lz4", "none", "snappy", "zstd")
HEADERS: list[tuple[str, str | bytes | None]] = [("a", b"1"), ("b", None), ("a", "ü")]


def fill(bootstrap: str, time_ms: int) -> None:
    """Topics of three partitions with keys, nulls, headers and times of their own; one of them in transactions."""
    for codec in CODECS:
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5})
        for number in range(1500):
            producer.produce(
                f"rows.{codec}",
                None if number % 17 == 0 else f"value {number} ".encode() * (number % 5),
                None if number % 3 == 0 else f"key {number % 50}",
                number % 3,
                timestamp=time_ms + number,
                headers=HEADERS[: number % 4],
            )
        assert producer.flush(30) == 0
    writer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "writer"})
    writer.init_transactions(20)
    for number in range(20):
        writer.begin_transaction()
        for row in range(10):
            writer.produce("rows.transactions", f"{number} {row}", partition=row % 3)
        assert writer.flush(20) == 0
        (writer.abort_transaction if number % 3 == 1 else writer.commit_transaction)(20)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_same_script_gives_the_same_rows(tmp_path: Path) -> None:
    jars = ",".join(map(str, connector_jars()))
    with running_node(tmp_path / "log", ["--data-dir", str(tmp_path / "data")]) as node:
        for topic in (*same_rows.TOPICS, "continued"):
            node.ok("topic", "create", topic, "--partitions", "3")
        time_ms = int(time.time() * 1000) - 60_000
        fill(node.bootstrap, time_ms)
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.same_rows", node.bootstrap, jars, str(time_ms)],
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
            cwd=ROOT,
            env=environment(),
        )
    assert done.returncode == 0, done.stderr[-5000:]
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(found) == len(same_rows.BATCHES) + 5
    assert [one["case"] for one in found if not one["same"]] == []
    assert all(one["rows"] for one in found)
