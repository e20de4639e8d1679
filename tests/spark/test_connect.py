"""The source and the sink through Spark Connect: what a client asks for is planned and run by a server."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.broker import UnknownTopicError
from tests.e2e.kafka.running_gateway import RunningGateway
from tests.e2e.running_node import environment
from tests.spark.reads import read

ROOT = Path(__file__).resolve().parents[2]
EXPECTED = sorted(f"value {number}" for number in range(20))
WAIT_S = 500  # on a machine with much else to do; on a quiet one it takes a quarter of a minute

pytestmark = [pytest.mark.slow, pytest.mark.timeout(WAIT_S + 30)]


def run_client(*argv: str) -> Any:
    """What the client says that it found."""
    # Told that this is a test, Spark takes a free port for its server.
    variables = {**environment({"SPARK_TESTING": "1"}), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.spark.connect_client", *argv]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False, cwd=ROOT, env=variables)
    assert done.returncode == 0, done.stderr[-5000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_topics_are_written_and_read_through_spark_connect_also_named_as_master(gateway: RunningGateway) -> None:
    gateway.create_topic("written", 2)
    assert run_client(gateway.bootstrap) == {
        "client": "pyspark.sql.connect.session",
        "values": EXPECTED,
        "by_master": len(EXPECTED),
    }


@pytest.mark.soak
def test_topics_are_copied_by_a_stream_through_spark_connect(gateway: RunningGateway, tmp_path: Path) -> None:
    with suppress(UnknownTopicError):
        gateway.run(gateway.broker.delete_topic("written"))
    for name in ("written", "copied"):
        gateway.create_topic(name, 2)
    assert run_client(gateway.bootstrap, str(tmp_path / "checkpoint"))["values"] == EXPECTED
    copied = read(gateway.bootstrap, subscribe="copied", kafka_isolation_level="read_committed")
    assert sorted(row["value"].decode() for row in copied) == EXPECTED
