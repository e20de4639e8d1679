"""What a refill leaves to others, on simulated nodes whose disks do one thing after another; counted in simulated time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random

from penstock.blob import BlobId, Erasure, GroupOptions, Status, VDiskOptions
from penstock.testing.node_world import NodeWorld
from penstock.testing.sim_loop import current_loop, run_simulation

OPTIONS = GroupOptions(
    vdisk=VDiskOptions(chunk_size=1 << 22, space_reserve=0), sync_interval=0.2, replication_interval=0.5, scrub_interval=None
)
BYTES_A_SECOND = 4e6
STORED, SIZE = 160, 64 << 10
WRITERS, PUT_SIZE = 4, 8 << 10
REFILLED = 3  # the node whose disk is wiped


class Puts:
    """Writers that each put one blob after another, and how many were acknowledged."""

    def __init__(self, world: NodeWorld) -> None:
        self._world = world
        self.count = 0
        self._step = 0
        self._tasks = [world.loop.create_task(self._write()) for _ in range(WRITERS)]

    async def rate(self, seconds: float) -> float:
        """Puts a second during a time."""
        before = self.count
        await asyncio.sleep(seconds)
        return (self.count - before) / seconds

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _write(self) -> None:
        while True:
            self._step += 1
            reply = await self._world.do(self._world.life.proxy.put(BlobId(1, 1, 1, self._step, 0, PUT_SIZE), bytes(PUT_SIZE)))
            assert reply.status is Status.OK, reply
            self.count += 1


async def _begin(options: GroupOptions) -> NodeWorld:
    world = NodeWorld(current_loop(), Erasure.MIRROR_3, options, Random(0))
    await world.form()
    for step in range(1, STORED + 1):
        data = step.to_bytes(2, "big") * (SIZE // 2)
        assert (await world.do(world.life.proxy.put(BlobId(1, 0, 1, step, 0, SIZE), data))).status is Status.OK
    for faults in world.faults:
        faults.throughput = BYTES_A_SECOND
    return world


async def _wipe(world: NodeWorld) -> None:
    node = world.nodes[REFILLED]
    node.kill()
    world.platters[REFILLED - 1].wipe()
    await asyncio.sleep(1.0)
    await node.start(world.configuration)
    await world.wait(lambda: REFILLED - 1 in node.host.refills(), 10.0, "the refill does not begin")


async def _kept(options: GroupOptions) -> float:
    """The share of their rate that writers keep while a disk is refilled."""
    world = await _begin(options)
    puts = Puts(world)
    alone = await puts.rate(2.0)
    await _wipe(world)
    rates: list[float] = []
    while world.nodes[REFILLED].host.refills() and len(rates) < 8:
        rates.append(await puts.rate(0.5))
    await puts.stop()
    host = world.nodes[REFILLED].host
    assert host.pace.restored_bytes > SIZE
    await world.stop()
    return sum(rates) / len(rates) / alone


def test_a_refill_leaves_others_at_least_70_percent() -> None:
    assert run_simulation(_kept(OPTIONS), seed=1) >= 0.7


def test_without_the_throttle_it_would_not() -> None:
    assert run_simulation(_kept(replace(OPTIONS, refill_share=1.0)), seed=1) < 0.7


def test_a_refill_that_has_the_group_to_itself_goes_at_full_speed_and_tells_how_far_it_is() -> None:
    async def main(options: GroupOptions) -> tuple[float, set[float]]:
        world = await _begin(options)
        await _wipe(world)
        began, host = current_loop().time(), world.nodes[REFILLED].host
        told = set()
        while refills := host.refills():
            told.add(refills[REFILLED - 1].ratio)
            await asyncio.sleep(0.05)
        took = current_loop().time() - began
        assert world.nodes[REFILLED].host.vdisks[REFILLED - 1].proves_absence
        await world.stop()
        return took, told

    paced, told = run_simulation(main(OPTIONS), seed=1)
    unpaced, _ = run_simulation(main(replace(OPTIONS, refill_share=1.0)), seed=1)
    assert paced < 1.5 * unpaced
    assert told <= {0.0, 0.5, 1.0}
