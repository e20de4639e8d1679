"""A fixed number of runs of the partition simulation: rival tablets on faulty groups, writers that resend, readers."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from penstock.blob import Erasure
from penstock.testing.queue_world import QueueWorld
from penstock.testing.sim_loop import ProcessDiedError, current_loop, run_simulation
from penstock.testing.simulate_partition import run_seed


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_promises_hold_under_faults_and_rival_generations(seed: int) -> None:
    assert run_seed(seed).counts["write"]


def test_room_that_was_made_before_the_last_look_at_the_disk_is_used() -> None:
    """A run in which the disk was full, then flooded, and room was made between two looks at it."""
    assert run_seed(1007, Erasure.NONE).counts["write"]


def test_no_fault_is_carried_out_on_the_group_that_died_while_a_new_process_starts() -> None:
    """Its tasks never run again, so a fault that waits for them never ends."""

    async def story() -> None:
        world = QueueWorld(current_loop(), Erasure.MIRROR_3, Random(0))
        await world.start()
        world.process.crash()
        starting = asyncio.create_task(world.start())
        moving = asyncio.create_task(world.move(1))
        async with asyncio.timeout(60.0):
            while not starting.done():
                with pytest.raises(ProcessDiedError):
                    await world.do(world.life.take_out(0))
                await asyncio.sleep(0.001)
            await moving
        assert {vdisk.id.generation for vdisk in world.vdisks().values()} == {world.generation} == {2}
        await world.stop()

    run_simulation(story(), seed=0)


def test_a_seed_replays_exactly() -> None:
    assert run_seed(5) == run_seed(5)
