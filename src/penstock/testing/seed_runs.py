"""Runs of a simulation by seed, one to replay or many to search, and a report of what they did and how to see a failure again."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from typing import Any

from penstock.blob import Erasure
from penstock.testing.fault_ledger import InvariantError
from penstock.testing.sim_limits import RunLimits
from penstock.testing.sim_loop import run_simulation

PROGRESS_SEEDS = 100


@dataclass(slots=True)
class Run:
    """What a run did: answers by kind, crashes, and the faults with their times."""

    seed: int
    erasure: Erasure
    counts: dict[str, int] = field(default_factory=dict)
    crashes: int = 0
    faults: list[str] = field(default_factory=list)


RunSeed = Callable[[int, Erasure | None], Run]
"""Runs the simulation of one world with a seed, on the kind of group that is given or that the seed chooses."""


class SeedFailedError(AssertionError):
    """A run broke a promise; the message tells which, and how to see it again."""

    def __init__(self, run: Run, told: str) -> None:
        super().__init__(told)
        self.run = run


def simulate(run: Run, story: Coroutine[Any, Any, None], *, world: str, time_s_max: float) -> Run:
    """Run the story of a world; SeedFailedError if anything is not as promised."""
    try:
        limits = RunLimits(time_s=time_s_max)
        run_simulation(story, seed=run.seed, timer_slack_s=0.0005, shuffle_ties=True, limits=limits)
    except Exception as error:
        kind = run.erasure.value
        command = f"PYTHONHASHSEED=0 python -m penstock.testing.simulate --world {world} --seed {run.seed} --erasure {kind}"
        what = str(error) if isinstance(error, InvariantError) else f"{type(error).__name__}: {error}"
        raise SeedFailedError(run, f"seed {run.seed}, {kind}: {what}\nreplay with: {command}") from error
    return run


def replay(run_seed: RunSeed, seed: int, erasure: Erasure | None) -> int:
    """Run one seed and print all of it; 1 if it failed."""
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


def search(run_seed: RunSeed, seeds: range, erasure: Erasure | None, workers: int = 1) -> int:
    """Run many seeds, in so many processes, and print those that failed and a summary; 1 if any did."""
    started = time.monotonic()
    totals: Counter[str] = Counter()
    failures = 0
    with ExitStack() as stack:
        outcomes: Iterable[Counter[str] | str] = map(partial(_outcome, run_seed, erasure), seeds)
        if workers > 1:
            pool = stack.enter_context(get_context("fork").Pool(workers))
            outcomes = pool.imap_unordered(partial(_outcome, run_seed, erasure), seeds)
        for done, outcome in enumerate(outcomes, start=1):
            if isinstance(outcome, str):
                failures += 1
                print(f"FAILED {outcome}", flush=True)
            else:
                totals += outcome
            if done % PROGRESS_SEEDS == 0 or done == len(seeds):
                print(f"{done} seeds, {failures} failed, {time.monotonic() - started:.0f} s", flush=True)
    print(", ".join(f"{key}: {totals[key]}" for key in sorted(totals)))
    return 1 if failures else 0


def _outcome(run_seed: RunSeed, erasure: Erasure | None, seed: int) -> Counter[str] | str:
    """What a run did, by kind; or how it failed."""
    try:
        run = run_seed(seed, erasure)
    except SeedFailedError as error:
        return str(error)
    return Counter(run.counts | {"crashes": run.crashes, f"held for {run.erasure.value}": 1})
