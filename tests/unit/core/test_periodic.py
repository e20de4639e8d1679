"""Periodic work goes on after a failure that it does not handle, which is reported."""

from __future__ import annotations

import asyncio

import pytest

from penstock.core.periodic import repeat
from penstock.testing.sim_loop import SimulationError, current_loop, run_simulation


def test_work_is_done_after_each_interval_until_it_is_cancelled() -> None:
    async def scenario() -> None:
        times: list[float] = []

        async def work() -> None:
            times.append(current_loop().time())
            await asyncio.sleep(3)

        task = asyncio.create_task(repeat("work", 2, work))
        await asyncio.sleep(13)
        task.cancel()
        await asyncio.sleep(20)
        assert times == [2, 7, 12]

    run_simulation(scenario())


def test_work_that_fails_goes_on_and_the_failure_is_reported() -> None:
    done = 0

    async def scenario() -> None:
        async def work() -> None:
            nonlocal done
            done += 1
            if done == 2:
                raise ZeroDivisionError("unexpected")

        task = asyncio.create_task(repeat("work", 1, work))
        await asyncio.sleep(5.5)
        task.cancel()

    with pytest.raises(SimulationError, match="work failed, and is tried again in 1 s") as told:
        run_simulation(scenario())
    assert isinstance(told.value.__cause__, ZeroDivisionError)
    assert done == 5
