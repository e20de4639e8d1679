"""Pages that are carried out from top to bottom."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench.kafka_peer.brokers import KafkaProcess
from tests.documented import ROOT, Shell, follow


@pytest.mark.slow
@pytest.mark.timeout(600)  # two sessions of Spark
def test_the_tutorial_works_as_written(tmp_path: Path) -> None:
    with Shell(tmp_path) as shell:
        assert follow(ROOT / "docs" / "tutorial.md", shell) >= 10


@pytest.mark.slow
def test_a_node_is_upgraded_as_written(tmp_path: Path) -> None:
    with Shell(tmp_path) as shell:
        assert follow(ROOT / "docs" / "how-to" / "upgrade.md", shell) >= 5


def _need(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


@pytest.mark.soak
@pytest.mark.timeout(600)  # Maven fetches Kafka's jars
def test_kafka_connect_runs_as_written(tmp_path: Path) -> None:
    _need("java", "mvn", "curl")
    with Shell(tmp_path) as shell:
        assert follow(ROOT / "docs" / "how-to" / "kafka-connect.md", shell) >= 6


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_kafka_is_migrated_from_as_written(tmp_path: Path) -> None:
    _need("java", "mvn")
    with Shell(tmp_path) as shell:
        kafka = KafkaProcess(tmp_path / "kafka", synced=False)
        kafka.port = int(shell.here("127.0.0.1:9192").rpartition(":")[2])
        try:
            kafka.start()
            assert follow(ROOT / "docs" / "how-to" / "migrate-from-kafka.md", shell) >= 8
        finally:
            kafka.stop()
