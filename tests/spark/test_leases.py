"""What a query has planned to read is kept until it has read it, although its retention has passed."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.blob import GroupOptions, VDiskOptions
from penstock.broker import BrokerOptions, Topic, TopicConfig
from penstock.broker.leases import LeaseOptions
from penstock.kafka.client import BlockingClient, ClientOptions, TopicPartition, parse_addresses
from penstock.kafka.client.connection import Connection
from penstock.kafka.protocol import private_keys
from penstock.kafka.protocol.private_reads import FoundPiece
from penstock.spark import leases
from penstock.spark.direct_reading import OpenFiles
from penstock.spark.leases import LeaseKeeper, new_lease_id, renewing, try_take_lease
from tests.e2e.kafka.running_gateway import RunningGateway
from tests.spark.reads import batch_reader, produce, rows_of, stream_reader, values

# Enough for a body, which is in files only, and a head after it.
MANY: list[bytes | None] = [b"%06d" % number + bytes(1000) for number in range(9000)]
TEN: list[bytes | None] = [b"value %d" % number for number in range(10)]
BRIEF = {"retention.ms": "1"}
SMALL_CHUNKS = GroupOptions(vdisk=replace(VDiskOptions(), chunk_size=8 << 20))


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[RunningGateway]:
    """A gateway whose retention looks often."""
    options = BrokerOptions(retention_interval_s=0.05)
    with RunningGateway(tmp_path, broker_options=options, group_options=SMALL_CHUNKS) as running:
        running.create_topic("t")
        running.create_topic("witness")
        yield running


def expire(gateway: RunningGateway) -> None:
    """Everything is too old from now on; returns when retention has gone over it."""
    produce(gateway.bootstrap, "witness", TEN)
    for name in ("t", "witness"):
        gateway.run(gateway.broker.configure_topic(name, TopicConfig(BRIEF)))
    wait_for_start(gateway, "witness", 10)
    gateway.run(gateway.broker._retention.once())  # over the other topic too, whichever comes first


def wait_for_start(gateway: RunningGateway, name: str, offset: int) -> None:
    deadline = time.monotonic() + 20
    while start_of(gateway, name) < offset:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def wait_for_renewal(gateway: RunningGateway) -> None:
    """Until the only lease there is has been renewed."""
    (lease,) = gateway.broker.leases
    deadline = time.monotonic() + 20
    while next(iter(gateway.broker.leases)).expires_s <= lease.expires_s:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def start_of(gateway: RunningGateway, name: str = "t") -> int:
    return gateway.broker.partition(topic_of(gateway, name), 0).start_offset


def topic_of(gateway: RunningGateway, name: str = "t") -> Topic:
    return gateway.broker.catalog.topic(name)


def cluster_of(gateway: RunningGateway) -> BlockingClient:
    return BlockingClient(ClientOptions(parse_addresses(gateway.bootstrap, "bootstrap")))


@pytest.mark.parametrize("direct", [True, False])
def test_a_batch_read_reads_all_that_was_planned(gateway: RunningGateway, direct: bool) -> None:
    produce(gateway.bootstrap, "t", MANY)
    reader = batch_reader(gateway.bootstrap, subscribe="t", direct=direct)
    careless = batch_reader(gateway.bootstrap, subscribe="t", direct=direct, lease=False, failOnDataLoss=False)
    planned, unleased = reader.partitions(), careless.partitions()
    expire(gateway)
    assert values(rows_of(reader, planned)) == MANY
    for lease in gateway.broker.leases:
        assert lease.owner.startswith("penstock-spark on ")
    gateway.run(gateway.broker.leases.release(next(iter(gateway.broker.leases._book._leases))))
    wait_for_start(gateway, "t", len(MANY))
    assert values(rows_of(careless, unleased)) == []


def test_a_restart_of_the_broker_takes_no_lease_away(gateway: RunningGateway) -> None:
    produce(gateway.bootstrap, "t", TEN)
    reader = batch_reader(gateway.bootstrap, subscribe="t")
    planned = reader.partitions()
    gateway.restart()
    expire(gateway)
    assert values(rows_of(reader, planned)) == TEN


def test_a_batch_read_begins_where_the_lease_does(gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    produce(gateway.bootstrap, "t", TEN)

    def late(*asked: Any) -> Any:
        gateway.run(gateway.broker.partition(topic_of(gateway), 0).trim(4))
        return try_take_lease(*asked)

    monkeypatch.setattr("penstock.spark.planner.try_take_lease", late)
    reader = batch_reader(gateway.bootstrap, subscribe="t")
    assert values(rows_of(reader, reader.partitions())) == TEN[4:]


def test_a_task_renews_the_lease_while_it_reads(gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "BATCH_S", 0.2)
    cluster = cluster_of(gateway)
    topic = cluster.topics(["t"])["t"]
    lease_id = new_lease_id()
    assert try_take_lease(cluster, lease_id, 60.0, {TopicPartition("t", 0): 3}, {"t": topic}) == {TopicPartition("t", 0): 0}
    with renewing(cluster, topic.leaders[0], lease_id):
        for _ in range(3):
            wait_for_renewal(gateway)
    (lease,) = gateway.broker.leases
    time.sleep(0.3)
    assert next(iter(gateway.broker.leases)) is lease
    cluster.close()


def test_a_stream_holds_what_its_batch_has_not_read_and_moves_on(gateway: RunningGateway) -> None:
    produce(gateway.bootstrap, "t", TEN)
    reader = stream_reader(gateway.bootstrap, subscribe="t", startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    planned = reader.partitions(start, end)
    expire(gateway)
    assert values(rows_of(reader, planned)) == TEN
    assert start_of(gateway) == 0
    # Spark asks for more when the batch is committed, and then the lease follows.
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    wait_for_start(gateway, "t", 10)
    produce(gateway.bootstrap, "t", TEN)
    reader.stop()
    assert len(gateway.broker.leases) == 0
    wait_for_start(gateway, "t", 20)


def test_a_batch_planned_before_a_restart_is_held_too(gateway: RunningGateway) -> None:
    produce(gateway.bootstrap, "t", TEN)
    before = stream_reader(gateway.bootstrap, subscribe="t", startingOffsets="earliest")
    start = before.initialOffset()
    end = json.loads(json.dumps(before.latestOffset(start, ReadAllAvailable())))
    reader = stream_reader(gateway.bootstrap, subscribe="t")
    planned = reader.partitions(start, end)
    before.stop()
    expire(gateway)
    assert values(rows_of(reader, planned)) == TEN
    reader.stop()


def test_a_stream_keeps_its_lease_alive(gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "MOVE_PAUSE_S", 0.05)
    cluster = cluster_of(gateway)
    topics = cluster.topics(["t"])
    keeper = LeaseKeeper(cluster.options, duration_s=2.0)
    keeper.hold(cluster, {TopicPartition("t", 0): 0}, topics)
    wait_for_renewal(gateway)
    assert gateway.broker.needed_from(topic_of(gateway), 0) == 0
    # A lease that expired without renewal is taken again.
    gateway.run(gateway.broker.leases.release(next(iter(gateway.broker.leases._book._leases))))
    deadline = time.monotonic() + 10
    while gateway.broker.needed_from(topic_of(gateway), 0) is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    keeper.release()
    assert len(gateway.broker.leases) == 0
    cluster.close()


def test_a_broker_without_leases_is_read_without_a_word(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    version_of = Connection.version_of

    def older(self: Connection, key: int, limit: int | None = None) -> int:
        return -1 if key == private_keys.TAKE_LEASE else version_of(self, key, limit)

    monkeypatch.setattr(Connection, "version_of", older)
    produce(gateway.bootstrap, "t", TEN)
    reader = batch_reader(gateway.bootstrap, subscribe="t")
    stream = stream_reader(gateway.bootstrap, subscribe="t", startingOffsets="earliest")
    with caplog.at_level(logging.INFO, "penstock.spark"):
        assert values(rows_of(reader, reader.partitions())) == TEN
        start = stream.initialOffset()
        end = stream.latestOffset(start, ReadAllAvailable())
        assert values(rows_of(stream, stream.partitions(start, end))) == TEN
        stream.stop()
    assert caplog.messages == []
    assert len(gateway.broker.leases) == 0


def test_a_lease_that_is_refused_is_done_without(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with RunningGateway(tmp_path, broker_options=BrokerOptions(leases=LeaseOptions(leases_max=0))) as gateway:
        gateway.create_topic("t")
        produce(gateway.bootstrap, "t", TEN)
        reader = batch_reader(gateway.bootstrap, subscribe="t")
        assert values(rows_of(reader, reader.partitions())) == TEN
        assert "going on without a lease" in caplog.text
        assert "there are 0 leases already" in caplog.text


def test_files_that_the_disk_has_rewritten_meanwhile_are_fetched(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gateway.create_topic("filling")
    for begin in range(0, len(MANY), 500):
        # So little of the one among so much of the other that chunks are sparse once the other is gone.
        produce(gateway.bootstrap, "t", MANY[begin : begin + 500])
        produce(gateway.bootstrap, "filling", [bytes(1_000_000)] * 4, message_max_bytes=2_000_000)
    read = OpenFiles.read
    rewritten: set[Path] = set()

    def overtaken(self: OpenFiles, pieces: list[FoundPiece], view: memoryview) -> None:
        paths = {Path(piece.path) for piece in pieces}
        if not rewritten:
            gateway.run(gateway.broker.delete_topic("filling"))
            life = gateway.run(gateway.storage.life(0))
            deadline = time.monotonic() + 20
            while not rewritten:
                assert time.monotonic() < deadline
                gateway.run(life.tend())
                rewritten.update(path for path in paths if not path.exists())
        read(self, pieces, view)

    monkeypatch.setattr(OpenFiles, "read", overtaken)
    reader = batch_reader(gateway.bootstrap, subscribe="t")
    with caplog.at_level(logging.INFO, "penstock.spark"):
        assert values(rows_of(reader, reader.partitions())) == MANY
    assert rewritten
    assert "by fetching, not from files" in caplog.text
