"""A node with a YDB listener as a whole: it stops and starts, speaks TLS, keeps to quotas and to what consumers need."""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import ydb

from tests.e2e.running_node import penstock
from tests.e2e.ydb.ydb_node import connected, read_all, ydb_node, ydb_port

CERTIFICATES = Path(__file__).parents[1] / "kafka" / "tls"


def test_a_stopped_node_is_waited_for(tmp_path: Path) -> None:
    with ydb_node(tmp_path) as node, connected(node) as driver, connected(node) as second:
        port = ydb_port(node)
        driver.topic_client.create_topic("/local/topic", consumers=["reader"])
        # Each has a driver of its own: when one of its streams is lost, a driver may cancel another that is just being opened.
        with driver.topic_client.writer("/local/topic", producer_id="source") as writer:
            writer.write_with_ack("before")
            with second.topic_client.reader("/local/topic", consumer="reader") as reader:
                reader.commit_with_ack(reader.receive_batch(timeout=30))
                assert node.stop() == 0
                waiting = writer.async_write_with_ack("after")
                with ydb_node(tmp_path, ["--ydb-port", port]):
                    assert waiting.result(timeout=60).offset == 1
                    assert [message.data for message in reader.receive_batch(timeout=60).messages] == [b"after"]


def test_messages_are_kept_for_important_consumers(tmp_path: Path) -> None:
    with ydb_node(tmp_path, ["--retention-interval-s", "0.1"]) as node, connected(node) as driver:
        client = driver.topic_client
        for name, important in (("kept", True), ("dropped", False)):
            consumer = ydb.TopicConsumer(name="reader", important=important)
            client.create_topic(f"/local/{name}", consumers=[consumer], retention_period=timedelta(milliseconds=1))
            with client.writer(f"/local/{name}", producer_id="source") as writer:
                writer.write_with_ack("a message")
        _until(lambda: _offsets(client, "/local/dropped") == (1, 1))
        assert _offsets(client, "/local/kept") == (0, 1)
        assert [message.data for message in read_all(client, "/local/kept", "reader", 1)] == [b"a message"]
        _until(lambda: _offsets(client, "/local/kept") == (1, 1))


def test_a_node_with_a_certificate_speaks_tls(tmp_path: Path) -> None:
    tls = ["--tls-cert", str(CERTIFICATES / "cert.pem"), "--tls-key", str(CERTIFICATES / "key.pem")]
    with ydb_node(tmp_path, [*tls, "--host", "127.0.0.1", "--advertised-host", "localhost"]) as node:
        driver = ydb.Driver(
            endpoint=f"grpcs://localhost:{ydb_port(node)}",
            database="/local",
            root_certificates=(CERTIFICATES / "cert.pem").read_bytes(),
            credentials=ydb.AnonymousCredentials(),
        )
        try:
            driver.wait(30, fail_fast=True)
            driver.topic_client.create_topic("/local/topic", consumers=["reader"])
            with driver.topic_client.writer("/local/topic") as writer:
                writer.write("hidden")
            assert read_all(driver.topic_client, "/local/topic", "reader", 1)[0].data == b"hidden"
        finally:
            driver.stop()


def test_writers_and_readers_are_held_to_quotas(tmp_path: Path) -> None:
    quota = ["--produce-bytes-per-s", "1000000", "--fetch-bytes-per-s", "1000000"]
    with ydb_node(tmp_path, quota) as node, connected(node) as driver:
        client = driver.topic_client
        client.create_topic("/local/topic", consumers=["reader"])
        started = time.monotonic()
        with client.writer("/local/topic", producer_id="source", codec=1) as writer:
            for _ in range(24):
                writer.write_with_ack(bytes(100_000))
        assert time.monotonic() - started > 0.5
        started = time.monotonic()
        read_all(client, "/local/topic", "reader", 24)
        assert time.monotonic() - started > 0.5


def test_a_partition_is_written_to_as_fast_as_its_topic_allows(tmp_path: Path) -> None:
    with ydb_node(tmp_path) as node, connected(node) as driver:
        client = driver.topic_client
        limits = {"partition_write_speed_bytes_per_second": 1_000_000, "partition_write_burst_bytes": 100_000}
        client.create_topic("/local/topic", **limits)
        described = client.describe_topic("/local/topic")
        assert (described.partition_write_speed_bytes_per_second, described.partition_write_burst_bytes) == (1_000_000, 100_000)
        started = time.monotonic()
        with client.writer("/local/topic", producer_id="source", codec=1) as writer:
            for _ in range(12):
                writer.write_with_ack(bytes(100_000))
        assert time.monotonic() - started > 0.9
        client.alter_topic("/local/topic", set_partition_write_speed_bytes_per_second=0)
        assert client.describe_topic("/local/topic").partition_write_speed_bytes_per_second == 0


def test_a_taken_port_is_told(tmp_path: Path) -> None:
    with ydb_node(tmp_path) as node:
        argv = ["up", "--data-dir", str(tmp_path / "other"), "--kafka-port", "none", "--ydb-port", ydb_port(node)]
        done = penstock(*argv)
    assert done.returncode == 7
    assert b"--ydb-port (0 picks a free one)" in done.stderr


def test_a_missing_extra_is_told(tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['ydb'] = None; from penstock.cli.main import main; sys.exit(main())"
    argv = ["up", "--data-dir", str(tmp_path / "data"), "--kafka-port", "none", "--ydb-port", "0"]
    done = subprocess.run([sys.executable, "-c", hidden, *argv], capture_output=True, timeout=60, check=False)
    assert done.returncode == 2
    assert b"pip install 'penstock[ydb]'" in done.stderr


def _offsets(client: Any, path: str) -> tuple[int, int]:
    stats = client.describe_topic(path, include_stats=True).partitions[0].partition_stats
    return stats.partition_start, stats.partition_end


def _until(condition: Any) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
