"""The fault simulation of BlobStorage: `python -m penstock.testing.simulate --world blob`.

A run is one group of a kind that the seed chooses, a few tablets that use it, and a nemesis that breaks whatever the fail model
says may break. Every answer is judged, and so is the whole group whenever it has healed. One seed always gives the same run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

from penstock.blob import Erasure
from penstock.testing.fault_checks import check_settled, settle
from penstock.testing.fault_ledger import InvariantError, Ledger
from penstock.testing.fault_nemesis import Nemesis
from penstock.testing.fault_tablet import Tablet
from penstock.testing.fault_world import World, draw_options
from penstock.testing.seed_runs import Run, simulate
from penstock.testing.sim_loop import ProcessDiedError, current_loop

CHANNELS = (0, 1, 2)
TIME_S_MAX = 1200.0
NEVER = 1 << 62


def erasure_of(seed: int) -> Erasure:
    """The kind of group that a seed chooses."""
    return tuple(Erasure)[seed % len(Erasure)]


def run_seed(seed: int, erasure: Erasure | None = None) -> Run:
    """Run one simulation; SeedFailedError if anything is not as promised."""
    run = Run(seed, erasure or erasure_of(seed))
    return simulate(run, _main(run, f"simulate/{run.erasure.value}"), world="blob", time_s_max=TIME_S_MAX)


async def _main(run: Run, name: str) -> None:
    loop = current_loop()
    rng = loop.fork_random(name)
    world = World(loop, run.erasure, draw_options(rng))
    ledger = Ledger(run.erasure, range(1, rng.randint(2, 4)), CHANNELS)
    run.counts = ledger.counts
    nemesis = Nemesis(world, ledger, loop.fork_random(f"{name}/nemesis"))
    run.faults = world.log
    tablets = [Tablet(world, ledger, tablet, loop.fork_random(f"{name}/{tablet}")) for tablet in ledger.tablets]
    # The first thing that may fail is the forming of the group.
    await world.start(rng.randint(0, 300) if rng.random() < 0.3 else None)
    for _ in range(rng.randint(1, 3)):
        await _epoch(world, nemesis, tablets, bursts=rng.randint(5, 25))
        await _judge(world, ledger)
        run.crashes = world.crashes
    if rng.random() < 0.5:
        for tablet in tablets:
            await tablet.end_all()
        await _judge(world, ledger)
    for crash in (False, True):
        if crash:
            world.process.crash()
        else:
            await world.stop()
        await world.start()
        await _judge(world, ledger)
    await world.stop()


async def _epoch(world: World, nemesis: Nemesis, tablets: Sequence[Tablet], *, bursts: int) -> None:
    """Work and faults together until the work is done, then healing."""
    loop = world.loop
    ending = asyncio.Event()
    work = [loop.create_task(tablet.run(bursts), name="tablet") for tablet in tablets]
    restarting = loop.create_task(nemesis.restart_after_crashes(), name="restarter")
    helpers = [restarting]
    if world.by_hand:
        helpers.append(loop.create_task(_take_care(world, loop.fork_random(f"care/{loop.steps}"), ending), name="care"))
    torment = loop.create_task(nemesis.torment(), name="torment")
    await _until_done(work, [*helpers, torment], nemesis)
    torment.cancel()
    world.process.crash_at_step(NEVER)
    await _until_done([loop.create_task(nemesis.heal(), name="heal")], helpers, nemesis)
    while not world.up.is_set():
        await world.up.wait()
    world.process.crash_at_step(NEVER)  # of one that was started since: it may have got past the crash it was to have
    ending.set()
    await _until_done(helpers[1:], [restarting], nemesis)
    restarting.cancel()
    await asyncio.gather(torment, restarting, return_exceptions=True)


async def _until_done(work: list[asyncio.Task[None]], helpers: list[asyncio.Task[None]], nemesis: Nemesis) -> None:
    """Wait for all of the work; fail at once if any of it fails, or anything that goes on beside it."""
    pending = set(work)
    while pending:
        done, _ = await asyncio.wait([*pending, *helpers], timeout=0.5, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        pending -= done
        nemesis.raise_failures()


async def _take_care(world: World, rng: Random, ending: asyncio.Event) -> None:
    """Rounds by hand, one after another, as the timers of a group would start them."""
    while not ending.is_set():
        await asyncio.sleep(rng.uniform(0, 0.2))
        await world.up.wait()
        life = world.life
        draw = rng.random()
        try:
            if draw < 0.4:
                await world.do(life.sync())
            elif draw < 0.8:
                await world.do(life.tend())
            elif draw < 0.95:
                await world.do(life.replicate())
            else:
                await world.do(life.scrub())
        except ProcessDiedError:
            continue
        except OSError as error:
            if not world.impaired and not world.flooded:
                raise InvariantError(f"a round failed on healthy disks: {error}") from error


async def _judge(world: World, ledger: Ledger) -> None:
    await settle(world)
    await check_settled(world, ledger)
