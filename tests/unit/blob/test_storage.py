"""The node's storage: groups opened on first use, tablets over several groups, the controller's groups over restarts."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.blob import (
    BlobId,
    BlobStorage,
    ChannelHistory,
    Controller,
    Erasure,
    GroupConfig,
    GroupOptions,
    Status,
    TabletInfo,
    VDiskOptions,
)
from penstock.blob.controller import ControllerState
from penstock.core.clock import SystemClock
from penstock.core.errors import ClosedError, ConfigError, FencedError, InvalidRequestError, UnavailableError

QUIET = GroupOptions(vdisk=VDiskOptions(chunk_size=1 << 20, space_reserve=0), sync_interval=None, scrub_interval=None)


@asynccontextmanager
async def _storage(groups: list[GroupConfig]) -> AsyncIterator[BlobStorage]:
    storage = BlobStorage(groups, clock=SystemClock(), random=random.Random(1), options=QUIET)
    try:
        yield storage
    finally:
        await storage.close()


def _group(path: Path, number: int) -> GroupConfig:
    return GroupConfig(number, Erasure.NONE, (path / f"disk{number}",))


def test_a_group_is_not_opened_before_it_is_used(tmp_path: Path) -> None:
    async def main() -> None:
        async with _storage([_group(tmp_path, 0), _group(tmp_path, 1)]) as storage:
            await storage.proxy(1)

    asyncio.run(main())
    assert [path.name for path in tmp_path.iterdir()] == ["disk1"]


def test_concurrent_first_uses_open_a_group_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with _storage([_group(tmp_path, 0)]) as storage:
            proxies = await asyncio.gather(*(storage.proxy(0) for _ in range(10)))
            assert len(set(map(id, proxies))) == 1

    asyncio.run(main())


def test_an_unknown_group_and_a_closed_storage_are_clear_errors(tmp_path: Path) -> None:
    async def main() -> None:
        async with _storage([_group(tmp_path, 0)]) as storage:
            with pytest.raises(InvalidRequestError, match="no group 00000005"):
                await storage.proxy(5)
        with pytest.raises(ClosedError):
            await storage.proxy(0)

    asyncio.run(main())


def test_a_group_that_could_not_be_opened_opens_once_the_cause_is_gone(tmp_path: Path) -> None:
    async def main() -> None:
        stranger = tmp_path / "disk0" / "00000000-0-0-0" / "letter.txt"
        stranger.parent.mkdir(parents=True)
        stranger.write_text("not yours")
        async with _storage([_group(tmp_path, 0)]) as storage:
            with pytest.raises(ConfigError, match=r"letter\.txt"):
                await storage.proxy(0)
            stranger.unlink()
            assert (await storage.proxy(0)).group.id == 0

    asyncio.run(main())


def test_a_tablet_finds_what_each_generation_wrote_in_the_group_of_that_generation(tmp_path: Path) -> None:
    async def main() -> None:
        info = TabletInfo(7, (ChannelHistory([(0, 0), (3, 1)]),))
        async with _storage([_group(tmp_path, 0), _group(tmp_path, 1)]) as storage:
            tablet = storage.tablet(info)
            blobs = [BlobId(7, 0, generation, 1, 0, 4) for generation in (1, 2, 3, 4)]
            for blob in blobs:
                assert (await tablet.put(blob, b"%04d" % blob.generation)).status is Status.OK
            old, new = await storage.proxy(0), await storage.proxy(1)
            assert (await old.get(blobs[1])).status is Status.OK
            assert (await old.get(blobs[2])).status is Status.NODATA
            assert (await new.get(blobs[2])).status is Status.OK
            found = await tablet.range(BlobId(7, 0, 0, 0, 0, 0), BlobId(7, 0, 9, 0, 0, 0), with_data=True)
            assert found.blobs == tuple((blob, b"%04d" % blob.generation) for blob in blobs)
            backwards = await tablet.range(BlobId(7, 0, 9, 0, 0, 0), BlobId(7, 0, 0, 0, 0, 0))
            assert [blob for blob, _ in backwards.blobs] == blobs[::-1]

    asyncio.run(main())


def test_a_tablet_discovers_its_newest_blob_in_an_older_group_if_the_newer_has_none(tmp_path: Path) -> None:
    async def main() -> None:
        async with _storage([_group(tmp_path, 0), _group(tmp_path, 1)]) as storage:
            tablet = storage.tablet(TabletInfo(7, (ChannelHistory([(0, 0), (3, 1)]),)))
            assert (await tablet.block(2, 11)).status is Status.OK
            assert (await tablet.put(BlobId(7, 0, 2, 1, 0, 1), b"x")).status is Status.OK
            found = await tablet.discover()
            assert (found.status, found.blobs) == (Status.OK, ((BlobId(7, 0, 2, 1, 0, 1), b"x"),))
            assert found.blocked_generation == 1

    asyncio.run(main())


@pytest.mark.parametrize("asks_first", [True, False], ids=["by discover", "by block"])
def test_s4_who_boots_with_an_old_channel_history_starts_again_with_the_newest_and_fences_the_owner(
    tmp_path: Path, *, asks_first: bool
) -> None:
    async def main() -> None:
        old = TabletInfo(7, (ChannelHistory([(0, 0)]),))
        new = TabletInfo(7, (old.channels[0].then(5, 1),))
        async with _storage([_group(tmp_path, 0), _group(tmp_path, 1)]) as storage:
            owner = storage.tablet(old)
            assert (await owner.block(4, 11)).status is Status.OK
            assert (await owner.put(BlobId(7, 0, 4, 1, 0, 1), b"a")).status is Status.OK
            owner = storage.tablet(new)
            assert (await owner.block(5, 12)).status is Status.OK
            assert (await owner.put(BlobId(7, 0, 5, 1, 0, 1), b"b")).status is Status.OK
        # A node that has not heard of the move boots the tablet, after a restart of all disks.
        async with _storage([_group(tmp_path, 0), _group(tmp_path, 1)]) as storage:
            owner, late = storage.tablet(new), storage.tablet(old)
            generation = await late.next_generation() if asks_first else 6
            assert generation == 6
            assert (await late.block(generation, 13)).status is Status.OK
            assert late.info == new
            assert (await owner.put(BlobId(7, 0, 5, 2, 0, 1), b"c")).status is Status.BLOCKED
            found = await late.discover(limit=9)
            assert [bytes(data or b"") for _, data in found.blobs] == [b"b", b"a"]
            assert (await late.put(BlobId(7, 0, 6, 1, 0, 1), b"d")).status is Status.OK
            assert (await (await storage.proxy(1)).get(BlobId(7, 0, 6, 1, 0, 1))).status is Status.OK

    asyncio.run(main())


@pytest.mark.parametrize("channels", [([(0, 0), (3, 1)],), ([(0, 1)], [(0, 0)])], ids=["one channel", "two channels"])
def test_a_tablet_starts_after_a_starter_that_died_between_blocking_two_groups(
    tmp_path: Path, channels: tuple[list[tuple[int, int]], ...]
) -> None:
    async def main() -> None:
        async with _storage([_group(tmp_path, 0), _group(tmp_path, 1)]) as storage:
            tablet = storage.tablet(TabletInfo(7, tuple(map(ChannelHistory, channels))))
            assert (await tablet.block(3, 11)).status is Status.OK
            assert (await tablet.put(BlobId(7, 0, 3, 1, 0, 1), b"x")).status is Status.OK
            # The next two starters get no further than the group that holds no newest blob.
            old = await storage.proxy(0)
            for generation, issuer in ((4, 12), (5, 13)):
                assert (await old.block(7, generation, issuer)).status is Status.OK
            found = await tablet.discover(with_data=False)
            assert (found.blocked_generation, [blob for blob, _ in found.blobs]) == (4, [BlobId(7, 0, 3, 1, 0, 1)])
            generation = await tablet.next_generation()
            assert generation == 6
            assert (await tablet.block(generation, 14)).status is Status.OK
            assert (await tablet.put(BlobId(7, 0, 6, 1, 0, 1), b"y")).status is Status.OK

    asyncio.run(main())


def test_a_tablet_is_blocked_and_collected_in_every_group_of_its_history(tmp_path: Path) -> None:
    async def main() -> None:
        async with _storage([_group(tmp_path, 0), _group(tmp_path, 1)]) as storage:
            tablet = storage.tablet(TabletInfo(7, (ChannelHistory([(0, 0), (3, 1)]),)))
            old, new = BlobId(7, 0, 2, 1, 0, 1), BlobId(7, 0, 3, 1, 0, 1)
            for blob in (old, new):
                await tablet.put(blob, b"x")
            assert (await tablet.block(5, 11)).status is Status.OK
            assert (await tablet.put(BlobId(7, 0, 4, 2, 0, 1), b"x")).status is Status.BLOCKED
            assert (await tablet.put(BlobId(7, 0, 2, 2, 0, 1), b"x")).status is Status.BLOCKED
            assert (await tablet.collect_garbage(0, 5, 1, barrier=(4, 9), keep=[old])).status is Status.OK
            assert (await tablet.get(old)).status is Status.OK
            assert (await tablet.get(new)).status is Status.NODATA

    asyncio.run(main())


def test_dynamic_groups_and_their_blobs_survive_a_restart(tmp_path: Path) -> None:
    async def first() -> GroupConfig:
        async with _storage([_group(tmp_path, 0)]) as storage:
            controller = await Controller.start(storage, 0, clock=SystemClock(), random=random.Random(1))
            for number in range(8):
                await controller.add_disk(tmp_path / f"pdisk{number}")
            config = await controller.create_group(Erasure.BLOCK_4_2)
            proxy = await storage.proxy(config.id)
            assert (await proxy.put(BlobId(9, 0, 1, 1, 0, 5), b"hello")).status is Status.OK
            return config

    async def second(before: GroupConfig) -> None:
        async with _storage([_group(tmp_path, 0)]) as storage:
            controller = await Controller.start(storage, 0, clock=SystemClock(), random=random.Random(2))
            assert controller.groups() == [before]
            proxy = await storage.proxy(before.id)
            assert (await proxy.get(BlobId(9, 0, 1, 1, 0, 5))).data == b"hello"

    asyncio.run(second(asyncio.run(first())))


def test_a_group_of_the_controller_is_new_until_it_was_used_once(tmp_path: Path) -> None:
    async def create() -> None:
        async with _storage([_group(tmp_path, 0)]) as storage:
            controller = await Controller.start(storage, 0, clock=SystemClock(), random=random.Random(1))
            for number in range(8):
                await controller.add_disk(tmp_path / f"pdisk{number}")
            await controller.create_group(Erasure.BLOCK_4_2)

    async def use(seed: int) -> Status:
        async with _storage([_group(tmp_path, 0)]) as storage:
            controller = await Controller.start(storage, 0, clock=SystemClock(), random=random.Random(seed))
            proxy = await storage.proxy(controller.groups()[0].id)
            return (await proxy.put(BlobId(9, 0, 1, seed, 0, 5), b"hello")).status

    asyncio.run(create())
    assert asyncio.run(use(2)) is Status.OK
    for number in range(8):
        shutil.rmtree(tmp_path / f"pdisk{number}")
    assert asyncio.run(use(3)) is Status.ERROR


def test_the_controllers_state_of_an_older_version_is_read() -> None:
    group = {"id": 5, "erasure": "none", "generation": 2, "disks": [1]}
    disk = {"id": 1, "path": "/disk", "realm": "1", "domain": "1"}
    raw = json.dumps({"version": 1, "next_group": 6, "disks": [disk], "groups": [group]}).encode()
    state = ControllerState.unpack(raw)
    assert state.groups[0].formed
    assert ControllerState.unpack(state.pack()) == state
    with pytest.raises(ConfigError, match="version 3, this version of Penstock reads up to 2"):
        ControllerState.unpack(json.dumps({"version": 3}).encode())


def test_a_moved_vdisk_is_refilled_on_its_new_disk_and_the_generation_rises(tmp_path: Path) -> None:
    async def main() -> None:
        async with _storage([_group(tmp_path, 0)]) as storage:
            controller = await Controller.start(storage, 0, clock=SystemClock(), random=random.Random(1))
            for number in range(9):
                await controller.add_disk(tmp_path / f"pdisk{number}")
            config = await controller.create_group(Erasure.BLOCK_4_2)
            life = await storage.life(config.id)
            for step in range(20):
                await life.proxy.put(BlobId(9, 0, 1, step, 0, 3), b"abc")
            moved = await controller.move_vdisk(config.id, 2)
            assert (moved.generation, moved.disks[2]) == (2, tmp_path / "pdisk8")
            await life.sync()
            assert str(life.vdisks[2].id) == f"[{config.id:08x}:2:0:2:0]"
            mains = sum(2 in life.group.subgroup(BlobId(9, 0, 1, step, 0, 3).pack()[:21])[:6] for step in range(20))
            assert life.vdisks[2].index.parts == mains

    asyncio.run(main())


def test_self_heal_moves_a_vdisk_only_after_it_has_been_out_for_long(tmp_path: Path) -> None:
    class HandClock(SystemClock):
        now = 0.0

        def monotonic(self) -> float:
            return self.now

    async def main() -> None:
        async with _storage([_group(tmp_path, 0)]) as storage:
            clock = HandClock()
            controller = await Controller.start(storage, 0, clock=clock, random=random.Random(1))
            for number in range(9):
                await controller.add_disk(tmp_path / f"pdisk{number}")
            config = await controller.create_group(Erasure.BLOCK_4_2)
            life = await storage.life(config.id)
            await life.take_out(5)
            assert await controller.self_heal(after_s=60) == []
            clock.now = 59.0
            assert await controller.self_heal(after_s=60) == []
            clock.now = 60.0
            assert await controller.self_heal(after_s=60) == [(config.id, 5)]
            assert 5 in life.vdisks

    asyncio.run(main())


def _vdisk_files(config: GroupConfig, order: int) -> set[str]:
    return {path.name for path in config.vdisk_directory(order).iterdir()} - {"lock"}


def test_self_heal_never_goes_back_to_a_disk_it_left_wipes_old_places_and_waits_for_refills(tmp_path: Path) -> None:
    async def main() -> None:
        async with _storage([_group(tmp_path, 0)]) as storage:
            controller = await Controller.start(storage, 0, clock=SystemClock(), random=random.Random(1))
            for number in range(9):
                await controller.add_disk(tmp_path / f"pdisk{number}")
            config = await controller.create_group(Erasure.BLOCK_4_2)
            life = await storage.life(config.id)
            for step in range(20):
                assert (await life.proxy.put(BlobId(9, 0, 1, step, 0, 3), b"abc")).status is Status.OK
            await life.group.drain()
            life.vdisks[5].answers = False  # it hangs
            assert await controller.self_heal(after_s=0) == [(config.id, 5)]
            assert _vdisk_files(config, 5) == set()
            # Two disks may be less than whole, not three.
            await life.take_out(1)
            with pytest.raises(UnavailableError, match="cannot do without VDisk 2"):
                await controller.move_vdisk(config.id, 2)
            await life.put_in(1)
            await life.sync()
            # The only disk that is free is the one that it left.
            life.vdisks[5].answers = False
            assert await controller.self_heal(after_s=0) == []
            assert controller.groups()[0].disks[5] == tmp_path / "pdisk8"
            await controller.trust_disk(6)
            stale = config.vdisk_directory(5) / "00000001.chunk"
            stale.write_bytes(b"left by an earlier stay")
            assert await controller.self_heal(after_s=0) == [(config.id, 5)]
            assert not stale.exists() or stale.read_bytes() != b"left by an earlier stay"
            await life.sync()
            assert life.vdisks[5].proves_absence
            for step in range(20):
                assert (await life.proxy.get(BlobId(9, 0, 1, step, 0, 3))).data == b"abc"

    asyncio.run(main())


def test_a_controller_that_was_replaced_is_told_so_and_changes_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with _storage([_group(tmp_path, 0)]) as storage:
            old = await Controller.start(storage, 0, clock=SystemClock(), random=random.Random(1))
            await Controller.start(storage, 0, clock=SystemClock(), random=random.Random(2))
            with pytest.raises(FencedError):
                await old.add_disk(tmp_path / "late")

    asyncio.run(main())


def test_disks_that_share_a_domain_do_not_make_a_group(tmp_path: Path) -> None:
    async def main() -> None:
        async with _storage([_group(tmp_path, 0)]) as storage:
            controller = await Controller.start(storage, 0, clock=SystemClock(), random=random.Random(1))
            for number in range(8):
                await controller.add_disk(tmp_path / f"pdisk{number}", domain="one rack")
            with pytest.raises(ConfigError, match="8 fail domains; there are 1"):
                await controller.create_group(Erasure.BLOCK_4_2)
            assert controller.groups() == []

    asyncio.run(main())
