"""The simulation loop: virtual time, replay by seed, stuck runs told apart, processes killed at any step."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from penstock.testing.sim_limits import RunLimits
from penstock.testing.sim_loop import (
    DeadlockError,
    ProcessDiedError,
    RunawayError,
    SimClock,
    SimLoop,
    SimProcess,
    SimulationError,
    current_loop,
    current_process,
    outside_context,
    run_simulation,
)

Trace = list[tuple[int, float, str]]


async def _workers(trace: Trace) -> Trace:
    """Workers that race for a lock after equal and unequal waits; the trace is the order they won it in."""
    loop = current_loop()
    lock = asyncio.Lock()

    async def worker(name: str) -> None:
        for turn in range(5):
            await asyncio.sleep(turn % 2)
            await loop.jitter()
            async with lock:
                trace.append((loop.steps, loop.time(), name))
                await asyncio.sleep(loop.random.random())

    async with asyncio.TaskGroup() as group:
        for name in "abcd":
            group.create_task(worker(name))
    return trace


def _traced(seed: int) -> Trace:
    return run_simulation(_workers([]), seed=seed, timer_slack_s=0.01, shuffle_ties=True)


def test_one_seed_gives_one_trace() -> None:
    assert _traced(7) == _traced(7)


def test_seeds_explore_different_traces() -> None:
    assert len({tuple(_traced(seed)) for seed in range(10)}) == 10


def test_time_is_virtual_and_exact() -> None:
    async def main() -> float:
        await asyncio.sleep(86_400)
        return current_loop().time()

    assert run_simulation(main()) == 86_400


def test_sim_clock_follows_the_loop() -> None:
    async def main() -> tuple[float, float]:
        clock = SimClock(current_loop(), epoch_s=1000.0)
        await asyncio.sleep(5)
        clock.skew_s = -2.0
        return clock.monotonic(), clock.wall()

    assert run_simulation(main()) == (5.0, 1003.0)


def test_timers_of_one_instant_fire_in_order_unless_shuffled() -> None:
    async def main() -> list[int]:
        fired: list[int] = []
        for number in range(20):
            current_loop().call_later(1, fired.append, number)
        await asyncio.sleep(2)
        return fired

    assert run_simulation(main()) == list(range(20))
    shuffled = run_simulation(main(), seed=1, shuffle_ties=True)
    assert shuffled != list(range(20))
    assert sorted(shuffled) == list(range(20))


def test_call_soon_stays_first_in_first_out() -> None:
    async def main() -> list[int]:
        ran: list[int] = []
        for number in range(20):
            current_loop().call_soon(ran.append, number)
        current_loop().call_soon_threadsafe(ran.append, 20)
        await asyncio.sleep(0)
        return ran

    assert run_simulation(main(), seed=3, shuffle_ties=True, timer_slack_s=1.0) == list(range(21))


def test_slack_makes_timers_late_never_early() -> None:
    async def main() -> list[float]:
        loop = current_loop()
        late: list[float] = []
        for _ in range(50):
            due = loop.time() + 1
            await asyncio.sleep(1)
            late.append(loop.time() - due)
        return late

    late = run_simulation(main(), seed=2, timer_slack_s=0.5)
    assert min(late) >= 0
    assert 0.1 < max(late) <= 0.5


def test_cancelled_timers_do_not_move_time_nor_pile_up() -> None:
    async def main() -> tuple[float, int]:
        loop = current_loop()
        for _ in range(1000):
            async with asyncio.timeout(3600):
                await asyncio.sleep(0.001)
        return round(loop.time(), 6), len(loop._timers)

    elapsed_s, timers = run_simulation(main())
    assert elapsed_s == 1.0
    assert timers < 250


def test_a_timeout_expires_in_virtual_time() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.Event().wait()
        return current_loop().time()

    assert run_simulation(main()) == 30


def test_a_deadlock_names_the_pending_tasks_and_their_line() -> None:
    async def waits_for_nobody() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await asyncio.create_task(waits_for_nobody(), name="lonely")

    with pytest.raises(DeadlockError, match=r"lonely: .*waits_for_nobody at .*locks\.py:\d+ \(Event\.wait\)"):
        run_simulation(main())


def test_endless_polling_is_a_runaway() -> None:
    async def main() -> None:
        loop = current_loop()
        while True:
            await loop.jitter(turns_max=5)

    with pytest.raises(RunawayError, match="no end at step 1000,"):
        run_simulation(main(), limits=RunLimits(steps=1000))


def test_steps_without_time_are_a_runaway_long_before_the_limit_of_steps() -> None:
    async def main() -> None:
        loop = current_loop()
        for _ in range(100):
            await asyncio.sleep(1)  # whatever came before does not count
        while True:
            await loop.jitter()

    with pytest.raises(RunawayError, match=r"time stands still for 300 steps at step .*, time 100\.0"):
        run_simulation(main(), limits=RunLimits(instant_steps=300))


def test_a_run_that_piles_up_memory_is_a_runaway_that_names_a_few_of_its_tasks() -> None:
    async def main() -> None:
        waiting = []
        while True:
            waiting.append(asyncio.create_task(asyncio.sleep(1000)))
            await asyncio.sleep(0.001)

    with pytest.raises(RunawayError, match=r"MiB of memory are in use at step 20000(?s:.*)and \d+ more"):
        run_simulation(main(), limits=RunLimits(memory_bytes=1 << 20))


def test_waiting_past_the_time_limit_is_a_runaway() -> None:
    async def main() -> None:
        async def again() -> None:
            await asyncio.sleep(3)

        while True:
            await again()

    with pytest.raises(RunawayError, match="limit of 60 s"):
        run_simulation(main(), limits=RunLimits(time_s=60))


def test_threads_are_refused() -> None:
    async def main() -> None:
        await asyncio.to_thread(print)

    with pytest.raises(SimulationError, match="no threads"):
        run_simulation(main())


def test_an_unhandled_failure_fails_the_run() -> None:
    async def main() -> None:
        current_loop().call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    with pytest.raises(SimulationError, match="1 unhandled failures") as caught:
        run_simulation(main())
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_leftover_tasks_are_cancelled_at_the_end() -> None:
    ended: list[str] = []

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("unwound")

    async def main() -> None:
        current_loop().leftover = asyncio.create_task(endless())  # type: ignore[attr-defined]
        await asyncio.sleep(0)

    run_simulation(main())
    assert ended == ["unwound"]


def test_call_at_step_runs_after_exactly_so_many_steps() -> None:
    async def main() -> list[int]:
        loop = current_loop()
        seen: list[int] = []
        for step in (9, 5, 7):
            loop.call_at_step(step, lambda: seen.append(loop.steps))
        for _ in range(20):
            await asyncio.sleep(0)
        with pytest.raises(ValueError, match="past 3"):
            loop.call_at_step(3, lambda: None)
        return seen

    assert run_simulation(main()) == [5, 7, 9]


def test_task_sets_are_ordered_alike_in_every_run() -> None:
    async def main() -> list[str]:
        tasks = {asyncio.create_task(asyncio.sleep(0)) for _ in range(50)}
        await asyncio.wait(tasks)
        return [task.get_name() for task in tasks]

    keep = [object() for _ in range(1000)]
    first = run_simulation(main())
    del keep[::3]
    assert run_simulation(main()) == first


# Processes.


async def _ticking(log: list[str]) -> None:
    async def child(name: str) -> None:
        try:
            while True:
                await asyncio.sleep(1)
                log.append(name)
        finally:
            log.append(f"{name} unwound")

    async with asyncio.TaskGroup() as group:
        group.create_task(child("first"))
        group.create_task(child("second"))


def test_a_crash_freezes_every_task_of_the_process_without_unwinding() -> None:
    async def main() -> tuple[list[str], list[str]]:
        log: list[str] = []
        process = SimProcess(current_loop(), "node")
        task = process.spawn(_ticking(log))
        await asyncio.sleep(2.5)
        process.crash()
        before = list(log)
        await asyncio.sleep(10)
        assert not task.done()
        return before, list(log)

    before, after = run_simulation(main())
    assert before == ["first", "second"] * 2
    assert after == before


def test_a_crash_reaches_callers_outside_as_a_lost_connection() -> None:
    async def main() -> float:
        loop = current_loop()
        process = SimProcess(loop, "node")
        loop.call_later(4, process.crash)
        with pytest.raises(ProcessDiedError):
            await process.call(asyncio.sleep(10))
        with pytest.raises(ProcessDiedError):
            _ = process.spawn(asyncio.sleep(0))
        return loop.time()

    assert run_simulation(main()) == 4


def test_call_returns_the_result_and_the_error_of_the_coroutine() -> None:
    async def good() -> str:
        await asyncio.sleep(1)
        process = current_process()
        assert process is not None
        return process.name

    async def bad() -> None:
        raise LookupError("inside")

    async def main() -> str:
        process = SimProcess(current_loop(), "node")
        with pytest.raises(LookupError, match="inside"):
            await process.call(bad())
        assert current_process() is None
        return await process.call(good())

    assert run_simulation(main()) == "node"


def test_cancelling_a_call_cancels_the_coroutine_inside() -> None:
    async def inside(log: list[str]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            log.append("cancelled")

    async def main() -> list[str]:
        log: list[str] = []
        process = SimProcess(current_loop(), "node")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await process.call(inside(log))
        await asyncio.sleep(0)
        return log

    assert run_simulation(main()) == ["cancelled"]


def test_crash_hooks_run_once_at_the_crash() -> None:
    async def main() -> list[float]:
        loop = current_loop()
        at: list[float] = []
        process = SimProcess(loop, "node")
        process.on_crash(lambda: at.append(loop.time()))
        loop.call_later(3, process.crash)
        loop.call_later(5, process.crash)
        await asyncio.sleep(9)
        return at

    assert run_simulation(main()) == [3]


def test_callbacks_in_flight_die_with_the_process_unless_sent_outside() -> None:
    async def main() -> list[str]:
        loop = current_loop()
        arrived: list[str] = []

        async def sender() -> None:
            loop.call_later(1, arrived.append, "own")
            loop.call_soon(loop.call_later, 1, arrived.append, "own too")
            loop.call_later(1, arrived.append, "wire", context=outside_context())
            await asyncio.sleep(10)

        process = SimProcess(loop, "node")
        _ = process.spawn(sender())
        loop.call_later(0.5, process.crash)
        await asyncio.sleep(5)
        return arrived

    assert run_simulation(main()) == ["wire"]


async def _count(log: list[int]) -> None:
    for number in range(10):
        log.append(number)
        await asyncio.sleep(0.1)


def _crashed_at(arm: Callable[[SimLoop, SimProcess], None]) -> list[int]:
    async def main() -> list[int]:
        log: list[int] = []
        process = SimProcess(current_loop(), "node")
        arm(current_loop(), process)
        with contextlib.suppress(ProcessDiedError):
            await process.call(_count(log))
        return log

    return run_simulation(main())


def test_a_process_can_be_crashed_at_each_of_its_own_steps() -> None:
    seen = [_crashed_at(lambda _, process, n=step: process.crash_at_step(n)) for step in range(40)]  # type: ignore[misc]
    assert seen[0] == []
    assert seen[1] == [0]
    assert seen[-1] == list(range(10))
    assert sorted(seen) == seen
    assert {len(log) for log in seen} == set(range(11))


def test_a_process_can_be_crashed_at_a_step_of_the_loop() -> None:
    seen = [_crashed_at(lambda loop, process, n=step: loop.call_at_step(n, process.crash)) for step in range(1, 40)]  # type: ignore[misc]
    assert {len(log) for log in seen} == set(range(11))


def test_a_process_starts_again_after_a_crash_on_the_same_loop() -> None:
    async def main() -> int:
        log: list[int] = []
        restarts = 0
        for step in range(5, 25, 5):
            process = SimProcess(current_loop(), "node")
            process.crash_at_step(step)
            with contextlib.suppress(ProcessDiedError):
                await process.call(_count(log))
            restarts += process.crashed
        return restarts

    assert run_simulation(main()) == 4


def test_a_crash_while_tasks_await_each_other_leaves_no_warning() -> None:
    async def stubborn() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(100)

    async def nested() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(stubborn())
            await asyncio.gather(stubborn(), asyncio.shield(asyncio.create_task(stubborn())))

    async def main() -> None:
        process = SimProcess(current_loop(), "node")
        _ = process.spawn(nested())
        await asyncio.sleep(1)
        _ = process.spawn(nested())
        process.crash()
        await asyncio.sleep(1)

    run_simulation(main())


def test_a_paused_process_runs_what_came_meanwhile_before_its_overdue_timers() -> None:
    async def main() -> list[str]:
        loop = current_loop()
        process = SimProcess(loop, "node")
        seen: list[str] = []

        async def work() -> None:
            loop.call_later(1.0, seen.append, "timer")
            await asyncio.sleep(5.0)
            seen.append(f"woken at {loop.time():g}")

        task = process.spawn(work())
        await asyncio.sleep(0.5)
        process.pause()
        await asyncio.sleep(2.0)
        answer = asyncio.ensure_future(process.call(_note(seen, "call")))
        await asyncio.sleep(7.5)
        assert seen == []
        process.resume()
        await answer
        await task
        return seen

    assert run_simulation(main()) == ["call", "timer", "woken at 10"]


async def _note(seen: list[str], what: str) -> None:
    seen.append(what)
