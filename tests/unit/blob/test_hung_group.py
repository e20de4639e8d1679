"""A group some of whose disks hang, vanish or are out at its start: others are looked after, every command is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock.blob import BlobId, BlobStorage, Erasure, GroupConfig, GroupOptions, Status, group_state
from penstock.blob.journal import RETRY_MAX_S
from penstock.blob.meta import DiskState
from penstock.blob.vdisk_host import REOPEN_S
from penstock.core.clock import SystemClock
from penstock.core.errors import ConfigError
from penstock.testing.sim_disk import TIMEOUT_S
from penstock.testing.sim_loop import current_loop
from tests.sim_group import SMALL, SimGroup, blob_at, payload, run_group

LIVELY = GroupOptions(vdisk=SMALL, sync_interval=1.0, replication_interval=5.0, scrub_interval=1.0)
REDUNDANT = [Erasure.BLOCK_4_2, Erasure.MIRROR_3_DC, Erasure.MIRROR_3]
redundant_kinds = pytest.mark.parametrize("erasure", REDUNDANT)
kinds_with_handoffs = pytest.mark.parametrize("erasure", [Erasure.BLOCK_4_2, Erasure.MIRROR_3_DC])


def test_with_three_silent_disks_every_command_answers_error_in_time() -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(1))
        blob_id = next(iter(blobs))
        for order in group.subgroup(blob_id)[:3]:
            group.faults[order].hung = True
        loop = current_loop()
        commands: list[Callable[[], Awaitable[Any]]] = [
            lambda: group.proxy.put(blob_at(1, 1000, generation=5), payload(1000, 1)),
            lambda: group.proxy.get(blob_id),
            lambda: group.proxy.block(1, 2, 7),
            lambda: group.proxy.collect_garbage(1, 0, 2, 1, barrier=(0, 0)),
            lambda: group.proxy.discover(1),
            lambda: group.proxy.range(blob_at(0, 0), blob_at(9, 0), with_data=True),
        ]
        began = loop.time()
        answers = await group.do(_all(commands))
        assert [answer.status for answer in answers] == [Status.ERROR] * len(commands)
        assert all(answer.reason for answer in answers)
        assert loop.time() - began <= 2 * TIMEOUT_S + 1
        # From now on it is known that they hang, and the answer comes without waiting, but for the pause between two attempts.
        began = loop.time()
        for command in commands:
            assert (await group.do(_all([command])))[0].status is Status.ERROR
        assert loop.time() - began <= len(commands) * (RETRY_MAX_S + 0.5)
        for order in group.orders:
            group.faults[order].hung = False
        await asyncio.sleep(5)
        await group.expect(blobs)
        assert await group.put(blob_at(2, 1000, generation=5), payload(1000, 2)) is Status.OK

    run_group(Erasure.BLOCK_4_2, scenario, LIVELY)


async def _all(commands: list[Callable[[], Awaitable[Any]]]) -> list[Any]:
    return await asyncio.gather(*(command() for command in commands))


def test_the_only_disk_hangs_and_comes_back() -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(1))
        group.faults[0].hung = True
        began = current_loop().time()
        assert await group.put(blob_at(1, 4), b"data") is Status.ERROR
        assert current_loop().time() - began <= TIMEOUT_S + 1
        assert group_state(group.life) == "read-only"
        group.faults[0].hung = False
        await asyncio.sleep(5)
        assert group_state(group.life) == "healthy"
        await group.expect(blobs)
        assert await group.put(blob_at(2, 4), b"data") is Status.OK

    run_group(Erasure.NONE, scenario, LIVELY)


@kinds_with_handoffs
def test_a_replaced_disk_is_refilled_and_others_are_looked_after_while_one_hangs(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(20))
        replaced, hung, other = 1, 4, 6
        await group.take_out(replaced)
        group.platters[replaced].wipe()
        group.faults[hung].hung = True
        await asyncio.sleep(3)
        await group.put_in(replaced)
        seen = group.life.vdisks[other].space
        await asyncio.sleep(4 * TIMEOUT_S)
        assert group.life.vdisks[replaced].index.state == DiskState.COMPLETE
        assert group.life.vdisks[other].space is not seen
        assert group_state(group.life) == "degraded"
        await group.expect(blobs)
        group.faults[hung].hung = False
        await asyncio.sleep(10)
        assert group_state(group.life) == "healthy"

    run_group(erasure, scenario, LIVELY)


@redundant_kinds
def test_a_group_with_a_disk_that_hangs_is_stopped_in_time(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        await group.store(range(3))
        group.faults[2].hung = True
        await group.put(blob_at(5, 1000), payload(1000, 5))
        began = current_loop().time()
        await group.do(group.life.stop())
        assert current_loop().time() - began <= 2 * TIMEOUT_S + 1

    run_group(erasure, scenario, LIVELY)


@pytest.mark.parametrize("erasure", list(Erasure))
def test_a_disk_that_vanishes_is_out_within_seconds_and_back_when_it_is_back(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(3))
        group.faults[0].gone = True
        group.absent.add(0)
        await asyncio.sleep(3)
        assert 0 not in group.life.vdisks
        assert group_state(group.life) == ("lost" if erasure is Erasure.NONE else "degraded")
        status = await group.put(blob_at(4, 1000), payload(1000, 4))
        assert status is (Status.ERROR if erasure is Erasure.NONE else Status.OK)
        group.faults[0].gone = False
        group.absent.discard(0)
        await asyncio.sleep(REOPEN_S + 10)
        assert group_state(group.life) == "healthy"
        await group.expect(blobs)

    run_group(erasure, scenario, LIVELY)


def test_the_only_disk_is_not_taken_back_empty() -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(3))
        files = group.platters[0].snapshot()
        group.faults[0].gone = True
        group.absent.add(0)
        await asyncio.sleep(3)
        group.platters[0].wipe()
        group.faults[0].gone = False
        group.absent.discard(0)
        await asyncio.sleep(2 * REOPEN_S)
        assert group_state(group.life) == "lost"
        assert group.platters[0].names() == []
        for name, data in files.items():
            group.platters[0].write(name, data)
        await asyncio.sleep(2 * REOPEN_S)
        assert group_state(group.life) == "healthy"
        await group.expect(blobs)

    run_group(Erasure.NONE, scenario, LIVELY)


def test_a_disk_that_is_taken_out_on_purpose_stays_out() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.do(group.life.take_out(3))
        await asyncio.sleep(3 * REOPEN_S)
        assert 3 not in group.life.vdisks

    run_group(Erasure.BLOCK_4_2, scenario, LIVELY)


@kinds_with_handoffs
def test_a_part_that_a_handoff_took_for_a_disk_that_was_only_late_is_dropped(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        await group.store(range(1))
        healthy = len(await group.holders(blob_at(0, 1000)))
        await asyncio.sleep(20)
        blob_id = blob_at(1, 1000)
        orders = group.subgroup(blob_id)
        group.faults[orders[0]].slow_factor = 100
        await group.store(range(1, 2))
        group.faults[orders[0]].slow_factor = 1
        assert len(await group.holders(blob_id)) >= healthy
        await asyncio.sleep(20)
        assert sorted(await group.holders(blob_id)) == sorted(orders[:healthy])

    run_group(erasure, scenario, replace(LIVELY, scrub_interval=None))


@kinds_with_handoffs
def test_the_start_does_not_wait_for_a_refill(erasure: Erasure) -> None:
    """A disk that was wiped, on a group whose reads take seconds: it serves long before the disk is full again."""

    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(60))
        await group.do(group.life.stop())
        group.platters[3].wipe()
        for faults in group.faults:
            faults.slow_factor = 2000
        began = current_loop().time()
        await group.start()
        started = current_loop().time()
        assert not group.life.vdisks[3].proves_absence
        await group.expect(dict(list(blobs.items())[:1]))
        assert not group.life.vdisks[3].proves_absence
        assert started - began < 40
        for faults in group.faults:
            faults.slow_factor = 1
        await asyncio.sleep(60)
        assert group_state(group.life) == "healthy"

    run_group(erasure, scenario, replace(LIVELY, scrub_interval=None))


def test_failing_writes_are_healed_without_traffic() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.store(range(1))
        group.faults[0].error_rate["flush"] = 1.0
        assert await group.put(blob_at(1, 4), b"data") is Status.ERROR
        for _ in range(5):
            await asyncio.sleep(1)
            assert group_state(group.life) == "read-only"
        group.faults[0].error_rate["flush"] = 0.0
        await asyncio.sleep(5)
        assert group_state(group.life) == "healthy"

    run_group(Erasure.NONE, scenario, LIVELY)


def test_a_group_in_real_directories_opens_with_one_dead_path(tmp_path: Path) -> None:
    """With the opener that a BlobStorage has by default; and the disk comes back by itself."""
    (tmp_path / "3").write_text("a file in the place of a directory")
    blob_id = BlobId(1, 0, 1, 1, 0, 4)

    async def run() -> None:
        paths = tuple(tmp_path / str(order) for order in range(8))
        options = GroupOptions(vdisk=SMALL, sync_interval=0.02, scrub_interval=None)
        formed = asyncio.Event()

        async def note_formed() -> None:
            formed.set()

        storage = BlobStorage(clock=SystemClock(), random=Random(1), durable=False, options=options)
        storage.add_group(GroupConfig(0, Erasure.BLOCK_4_2, paths), note_formed)
        life = await storage.life(0)
        assert sorted(life.vdisks) == [0, 1, 2, 4, 5, 6, 7]
        assert formed.is_set()
        assert (await life.proxy.put(blob_id, b"data")).status is Status.OK
        (tmp_path / "3").unlink()
        async with asyncio.timeout(REOPEN_S + 30):
            await _until(lambda: group_state(life) == "healthy")
        await storage.close()

    asyncio.run(run())


def test_a_group_of_one_disk_with_a_dead_path_says_so(tmp_path: Path) -> None:
    (tmp_path / "0").write_text("a file in the place of a directory")

    async def run() -> None:
        storage = BlobStorage([GroupConfig(0, Erasure.NONE, (tmp_path / "0",))], clock=SystemClock(), random=Random(1))
        with pytest.raises(ConfigError, match="cannot write to"):
            await storage.life(0)
        await storage.close()

    asyncio.run(run())


async def _until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.05)
