"""The fault simulation of BlobStorage: `python -m penstock.testing.simulate --seeds 1000`, or `--seed 7` to replay one run.

A run is one group of a kind that the seed chooses, a few tablets that use it, and a nemesis that breaks whatever the fail model
says may break. Every answer is judged, and so is the whole group whenever it has healed. One seed always gives the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from penstock.blob import Erasure
from penstock.testing.fault_checks import check_settled, settle
from penstock.testing.fault_ledger import InvariantError, Ledger
from penstock.testing.fault_nemesis import Nemesis
from penstock.testing.fault_tablet import Tablet
from penstock.testing.fault_world import World, draw_options
from penstock.testing.sim_loop import ProcessDiedError, current_loop, run_simulation

CHANNELS = (0, 1, 2)
STEPS_MAX = 20_000_000
TIME_S_MAX = 1200.0
NEVER = 1 << 62
PROGRESS_SEEDS = 100
KINDS = {erasure.value: erasure for erasure in Erasure}


class SeedFailedError(AssertionError):
    """A run broke a promise; the message tells which, and how to see it again."""

    def __init__(self, run: Run, told: str) -> None:
        super().__init__(told)
        self.run = run


@dataclass(slots=True)
class Run:
    """What a run did: answers by command and status, crashes, and the faults with their times."""

    seed: int
    erasure: Erasure
    counts: dict[str, int] = field(default_factory=dict)
    crashes: int = 0
    faults: list[str] = field(default_factory=list)


def erasure_of(seed: int) -> Erasure:
    """The kind of group that a seed chooses."""
    return tuple(Erasure)[seed % len(Erasure)]


def run_seed(seed: int, erasure: Erasure | None = None) -> Run:
    """Run one simulation; SeedFailedError if anything is not as promised."""
    run = Run(seed, erasure or erasure_of(seed))
    kind = run.erasure.value
    rng_name = f"simulate/{kind}"
    try:
        run_simulation(
            _main(run, rng_name), seed=seed, timer_slack_s=0.0005, shuffle_ties=True, steps_max=STEPS_MAX, time_s_max=TIME_S_MAX
        )
    except Exception as error:
        command = f"PYTHONHASHSEED=0 python -m penstock.testing.simulate --seed {seed} --erasure {kind}"
        what = str(error) if isinstance(error, InvariantError) else f"{type(error).__name__}: {error}"
        raise SeedFailedError(run, f"seed {seed}, {kind}: {what}\nreplay with: {command}") from error
    return run


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


def _run_many(seeds: range, erasure: Erasure | None) -> int:
    started = time.monotonic()
    totals: dict[str, int] = {}
    failures = 0
    for done, seed in enumerate(seeds, start=1):
        try:
            run = run_seed(seed, erasure)
        except SeedFailedError as error:
            failures += 1
            print(f"FAILED {error}", flush=True)
        else:
            for key, count in (run.counts | {"crashes": run.crashes, f"held for {run.erasure.value}": 1}).items():
                totals[key] = totals.get(key, 0) + count
        if done % PROGRESS_SEEDS == 0 or done == len(seeds):
            print(f"{done} seeds, {failures} failed, {time.monotonic() - started:.0f} s", flush=True)
    print(", ".join(f"{key}: {totals[key]}" for key in sorted(totals)))
    return 1 if failures else 0


def _run_one(seed: int, erasure: Erasure | None) -> int:
    try:
        run = run_seed(seed, erasure)
    except SeedFailedError as error:
        print("\n".join(error.run.faults))
        traceback.print_exception(error.__cause__)
        print(f"FAILED {error}")
        return 1
    print("\n".join(run.faults))
    print(f"seed {seed}, {run.erasure.value}: all promises held; {run.crashes} crashes; {dict(sorted(run.counts.items()))}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """The command; the number of failed seeds decides its exit code."""
    parser = argparse.ArgumentParser(prog="python -m penstock.testing.simulate", description="Simulate faults of BlobStorage.")
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="replay this one seed")
    parser.add_argument("--erasure", choices=KINDS, help="the kind of group, instead of the one the seed chooses")
    parser.add_argument("--verbose", action="store_true", help="show what the group logs")
    parser.add_argument(
        "--world", choices=("blob", "partition"), default="blob", help="what to simulate: storage, or queues on it"
    )
    asked = parser.parse_args(argv)
    if asked.world == "partition":
        from penstock.testing.simulate_partition import simulate

        return simulate(asked)
    logging.basicConfig(level=logging.INFO if asked.verbose else logging.CRITICAL)
    erasure = None if asked.erasure is None else KINDS[asked.erasure]
    if asked.seed is not None:
        return _run_one(asked.seed, erasure)
    return _run_many(range(asked.first, asked.first + asked.seeds), erasure)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of bytes keep an order that depends on it, and with it a run.
        os.execve(
            sys.executable,
            [sys.executable, "-m", "penstock.testing.simulate", *sys.argv[1:]],
            os.environ | {"PYTHONHASHSEED": "0"},
        )
    sys.exit(main())
