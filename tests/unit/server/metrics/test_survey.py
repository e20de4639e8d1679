"""The survey of a broker, and what is counted in its tablets and disks: on real partitions and simulated disks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from penstock.blob import BlobId, BlobStorage, Erasure, GroupConfig, LocalDisk, LocalGroup, Status, group_state
from penstock.blob.channel import size_part_of
from penstock.broker import Position, TopicConfig, TopicPartition
from penstock.broker.leases import LeaseKey
from penstock.core.clock import SystemClock
from penstock.queue import backlog_of
from penstock.server.metrics.disk_damage import disk_damage
from penstock.server.metrics.flows import TopicFlows
from penstock.server.metrics.survey import Lag, Survey, SurveyResult
from penstock.testing.batches import make_batch
from penstock.testing.sim_loop import run_simulation
from tests.sim_broker import SimBroker
from tests.sim_group import BY_HAND, GROUP_ID, SimGroup, blob_at, payload

HOUR_MS = 3_600_000
Scenario = Callable[[SimBroker], Coroutine[Any, Any, None]]


def simulated(scenario: Scenario) -> None:
    async def main() -> None:
        host = await SimBroker().start()
        await host.do(scenario(host))
        await host.stop()

    run_simulation(main())


async def surveyed(host: SimBroker) -> SurveyResult:
    survey = Survey(host.broker, host.broker.reading())
    await survey.take()
    return survey.last


def now_ms(host: SimBroker) -> int:
    return int(host.broker.clock.wall() * 1000)


async def write(host: SimBroker, topic: str, count: int, *, age_ms: int = 0, number: int = 0) -> None:
    batch = make_batch([b"x" * 100] * count, timestamp=now_ms(host) - age_ms)
    await host.broker.produce(host.topic(topic), number, batch)


async def commit(host: SimBroker, consumer: str, topic: str, offset: int, number: int = 0) -> None:
    await host.broker.consumers.commit(consumer, [(TopicPartition(host.topic(topic).id, number), Position(offset))])


def test_lags_are_told_in_messages_time_and_share_of_retention() -> None:
    async def scenario(host: SimBroker) -> None:
        config = TopicConfig({"retention.ms": str(10 * HOUR_MS)})
        await host.broker.create_topic("t", 2, config)
        await write(host, "t", 10, age_ms=5 * HOUR_MS)
        await write(host, "t", 4, age_ms=HOUR_MS, number=1)
        await commit(host, "behind", "t", 5)
        await commit(host, "behind", "t", 0, 1)
        await commit(host, "done", "t", 10)
        found = await surveyed(host)
        behind, done = found.lags
        assert (behind.consumer, behind.topic, behind.messages) == ("behind", "t", 9)
        assert behind.seconds == pytest.approx(5 * 3600, abs=10)
        assert behind.retention_share == pytest.approx(0.5, abs=0.01)
        assert done == Lag("done", "t")
        assert (found.consumers, found.positions, found.topics, found.partitions) == (2, 3, 1, 2)
        assert found.topic_messages == {"t": 14}
        assert found.head_bytes == found.topic_bytes["t"] > 1400
        assert (found.bodies, found.body_bytes, found.tablets) == (0, 0, (1, 1))

    simulated(scenario)


def test_bytes_and_time_of_a_lag_are_told_within_bodies_too() -> None:
    async def scenario(host: SimBroker) -> None:
        await host.broker.create_topic("t", 1)
        start_ms = now_ms(host) - 1000
        for at in range(10):
            await host.broker.produce(host.topic("t"), 0, make_batch([b"x" * 1000] * 10, timestamp=start_ms + at * 100))
        partition = host.partition("t", 0)
        await partition.roll_head()
        await host.broker.produce(host.topic("t"), 0, make_batch([b"x"], timestamp=start_ms + 1000))
        whole, half, last = (backlog_of(partition, offset) for offset in (0, 50, 100))
        assert (whole.messages, whole.size, whole.since_ms) == (101, partition.size, start_ms)
        assert half.messages == 51
        assert half.size == pytest.approx(partition.size / 2, rel=0.02)
        assert half.since_ms == pytest.approx(start_ms + 450, abs=60)
        assert (last.messages, last.since_ms) == (1, start_ms + 1000)
        assert backlog_of(partition, 101) == (0, 0, None)
        assert backlog_of(partition, 10**9) == (0, 0, None)

    simulated(scenario)


def test_a_topic_that_an_important_consumer_keeps_from_being_trimmed_is_named() -> None:
    async def scenario(host: SimBroker) -> None:
        config = TopicConfig({"retention.ms": str(HOUR_MS), "penstock.important.consumers": "auditor"})
        await host.broker.create_topic("kept", 1, config)
        await host.broker.create_topic("free", 1, TopicConfig({"retention.ms": str(HOUR_MS)}))
        for topic in ("kept", "free"):
            await write(host, topic, 3, age_ms=3 * HOUR_MS)
        assert list((await surveyed(host)).blocked) == ["kept"]
        assert "stands at offset 0" in (await surveyed(host)).blocked["kept"]
        await commit(host, "auditor", "kept", 3)
        assert (await surveyed(host)).blocked == {}
        await host.broker.leases.take(LeaseKey(UUID(int=1), "ann"), "a scan", 60.0, {TopicPartition(host.topic("free").id, 0): 1})
        assert "a scan has a lease, and is to read from offset 1" in (await surveyed(host)).blocked["free"]

    simulated(scenario)


def test_counts_of_a_topic_outlive_the_generations_of_its_tablet() -> None:
    async def scenario(host: SimBroker) -> None:
        await host.broker.create_topic("t", 1)
        flows, reading = TopicFlows(), host.broker.reading()
        await write(host, "t", 5)
        tablet = host.broker.tablets._hosted[host.topic("t").tablets[0]].tablet
        assert tablet is not None
        await tablet.stop()
        await asyncio.sleep(1)
        assert host.partition("t", 0).epoch > tablet.generation
        await write(host, "t", 2)
        await host.partition("t", 0).read(0, 1 << 20)
        flows.update(reading.flows(), 1.0)
        counts = dict(flows.shown())["t"]
        assert (counts.messages_in, counts.batches_in, counts.messages_out, counts.reads) == (7, 2, 7, 1)
        assert host.broker.probe.tablets.commits.count >= 3

    simulated(scenario)


def test_a_broker_whose_system_tablet_is_gone_says_so() -> None:
    async def scenario(host: SimBroker) -> None:
        reading = host.broker.reading()
        assert reading.trouble() is None
        system = host.broker.system_tablets.running[0]
        await system.latest.stop()
        assert "starting again" in (reading.trouble() or "")
        await asyncio.sleep(5)
        assert reading.trouble() is None

    simulated(scenario)


def test_a_group_counts_what_it_repairs_and_knows_how_well_it_is() -> None:
    async def main() -> None:
        group = await SimGroup(Erasure.BLOCK_4_2).start()
        for step in range(1, 30):
            assert (await group.proxy.put(blob_at(step, 4000), payload(4000, step))).status is Status.OK
        assert group_state(group.life) == "healthy"
        await group.life.take_out(2)
        assert group_state(group.life) == "degraded"
        for order in (3, 4):
            await group.life.take_out(order)
        assert group_state(group.life) == "lost"
        for order in (2, 3, 4):
            await group.life.put_in(order)
        await group.life.sync()
        assert group_state(group.life) == "healthy"
        await group.life.scrub()
        probe = group.life.probe
        assert (probe.damaged_found, probe.parts_failed) == (0, 0)
        assert probe.scrub_finished_ms > 0
        await group.life.replicate()
        assert probe.rounds > 0
        await group.life.stop()

    run_simulation(main())


def test_full_disks_make_a_group_read_only() -> None:
    async def main() -> None:
        group = await SimGroup(Erasure.NONE).start()
        assert group_state(group.life) == "healthy"
        group.life.vdisks[0].full = True
        assert group_state(group.life) == "read-only"
        await group.life.stop()

    run_simulation(main())


def test_a_disk_counts_its_writes_and_how_long_syncs_took(tmp_path: Path) -> None:
    async def main() -> None:
        disks: list[LocalDisk] = []

        async def open_disk(order: int) -> LocalDisk:
            disks.append(await LocalDisk.open(tmp_path / str(order)))
            return disks[-1]

        life = LocalGroup(GROUP_ID, 1, Erasure.NONE, open_disk, clock=SystemClock(), random=Random(1), options=BY_HAND)
        await life.start()
        before = disks[0].probe.bytes_written
        assert (await life.proxy.put(BlobId(1, 0, 1, 1, 0, 5000), bytes(5000))).status is Status.OK
        probe = disks[0].probe
        assert probe.bytes_written - before >= 5000
        assert probe.syncs.count == probe.writes > 0
        assert probe.syncs.total_s > 0
        assert probe.failures == 0
        await life.stop()

    asyncio.run(main())


def test_damage_that_no_reader_has_met_is_told_with_disk_topic_and_offsets() -> None:
    async def scenario(host: SimBroker) -> None:
        for name in ("hurt", "sound"):
            topic = await host.broker.create_topic(name, 1)
            for number in range(4):
                await host.broker.produce(topic, 0, make_batch([bytes([number]) * 20_000]))
            await host.partition(name, 0).roll_head()
        await host.broker.produce(host.topic("hurt"), 0, make_batch([b"sound"]))
        partition = host.partition("hurt", 0)
        (vdisk,) = (await host.node.storage.life(0)).vdisks.values()
        lost = next(partition.tablet.blobs(partition.bodies[0].key))
        entry = vdisk.index.entry_of(lost.pack_part(1))
        assert entry is not None
        assert vdisk.index.mark_damaged(lost.pack_part(1), entry)
        survey = Survey(host.broker, host.broker.reading(), None, partial(disk_damage, host.node.storage, host.broker))
        await survey.take()
        (disk,) = survey.last.damaged_disks
        assert (disk.path, disk.parts, disk.places) == ("nowhere", 1, ("partition 0 of topic 'hurt'",))
        assert disk.topics == ("hurt",)
        assert list(survey.last.damaged) == [("hurt", 0)]
        assert "the first from offset 0 to 3" in survey.last.damaged["hurt", 0]
        await partition.trim(4)
        await partition.tablet.collect_garbage()
        assert vdisk.index.damaged == set()
        await survey.take()
        assert (survey.last.damaged_disks, survey.last.damaged) == ([], {})

    simulated(scenario)


def test_a_damaged_system_tablet_is_told_by_what_it_holds() -> None:
    async def scenario(host: SimBroker) -> None:
        (vdisk,) = (await host.node.storage.life(0)).vdisks.values()
        channel_key, channel = next(
            (key, channel) for key, channel in vdisk.index.channels.items() if key[7] == 2 and channel.blobs
        )
        key = next(iter(channel.blobs))
        part = channel_key + key + size_part_of(channel.entries(key)[0]).to_bytes(4, "big")
        assert vdisk.index.mark_damaged(part, channel.entries(key)[0])
        (disk,) = (await disk_damage(host.node.storage, host.broker)).disks
        assert disk.places == ("system tablet 2 (topics, users, access rules and quotas)",)
        assert disk.topics == ()

    simulated(scenario)


def test_parts_that_a_group_with_copies_could_not_restore_are_told() -> None:
    async def scenario(host: SimBroker) -> None:
        group = await SimGroup(Erasure.BLOCK_4_2).start()
        storage = BlobStorage([], clock=host.node.clock, random=Random(1))
        storage.adopt(
            GroupConfig(GROUP_ID, Erasure.BLOCK_4_2, tuple(Path(f"/disk{order}") for order in group.orders)), group.life
        )
        assert (await disk_damage(storage, host.broker)).disks == []
        group.life.probe.to_heal[3] = 2
        (disk,) = (await disk_damage(storage, host.broker)).disks
        assert (disk.path, disk.parts, disk.has_copies) == ("/disk3", 2, True)
        await storage.close()

    simulated(scenario)
