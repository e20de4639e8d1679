"""A deterministic asyncio loop with virtual time, and processes on it that can be killed at any await.

Time stands still while callbacks run and jumps to the next timer when none is ready; there are no threads and no sockets.
The same seed gives the same run, step for step. What may vary with the seed is only what asyncio leaves open:

- `call_soon` is first in, first out by contract, so that order is never touched;
- a timer may fire late (`timer_slack_s`), and timers of one instant fire in any order (`shuffle_ties`);
- code that wants more interleavings asks for them with `await loop.jitter()`.

Tasks and futures hash by serial number, since asyncio keeps them in sets whose order would otherwise follow their addresses,
and cyclic garbage is collected on a schedule of steps. A set of `str` still needs a fixed PYTHONHASHSEED to replay.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import heapq
import random
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple, Unpack

from penstock.testing.sim_limits import RunLimits, memory_held
from penstock.testing.sim_tasks import SimFuture, SimTask
from penstock.testing.suspended_tasks import discard, waiting_at

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

_STEPS_PER_COLLECTION = 20_000
_STEPS_PER_FULL_COLLECTION = 1_000_000
_TASKS_TOLD = 100
_CLEANUP_STEPS_MAX = 100_000
_CLEANUP_TIME_S_MAX = 86_400.0
_TIMERS_CANCELLED_MIN = 100
_EPOCH_S = 1_700_000_000.0


class SimulationError(RuntimeError):
    """The simulation was used in a way it does not support, or something in it failed unhandled."""


class StuckError(SimulationError):
    """The awaited coroutine cannot finish; the message names every pending task and the line it waits at."""


class DeadlockError(StuckError):
    """Nothing is ready and no timer is left."""


class RunawayError(StuckError):
    """The run used up its steps, its virtual time or its memory, or time stands still in it."""


class ProcessDiedError(ConnectionError):
    """What a caller outside sees of a process that crashed before it answered."""


class SimCrashed(BaseException):
    """Raised to code of a dead incarnation that still runs. Like `CancelledError` it passes `except Exception`: the code that
    would handle it no longer exists."""


class SimClock:
    """`core.clock.Clock` on a loop's time; `wall` is a fixed epoch plus that time plus `skew_s`, which a test may change."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, epoch_s: float = _EPOCH_S, skew_s: float = 0.0) -> None:
        self._loop = loop
        self._epoch_s = epoch_s
        self.skew_s = skew_s

    def monotonic(self) -> float:
        return self._loop.time()

    def wall(self) -> float:
        return self._epoch_s + self.skew_s + self._loop.time()


_PROCESS: contextvars.ContextVar[SimProcess | None] = contextvars.ContextVar("penstock_sim_process", default=None)


def current_process() -> SimProcess | None:
    """The process whose code is running, if any."""
    return _PROCESS.get()


def outside_context() -> contextvars.Context:
    """A context of no process, for callbacks that outlive their caller's crash, such as packets already on the wire."""
    context = contextvars.copy_context()
    context.run(_PROCESS.set, None)
    return context


def current_loop() -> SimLoop:
    """The running loop, which must be a `SimLoop`."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, SimLoop):
        raise SimulationError(f"expected to run on a SimLoop, not on {type(loop).__name__}")
    return loop


class SimProcess:
    """Coroutines that live and die together: a crash freezes their tasks, callbacks and timers where they stand.

    Membership follows the context: whatever is scheduled by code of the process belongs to it. Frozen code runs no further, not
    even its `finally` blocks, until the loop closes; by then its disks are dead. If the process crashes itself from inside, the
    step that did so runs on to its next await.
    """

    def __init__(self, loop: SimLoop, name: str) -> None:
        self.name = name
        self.crashed = False
        self.steps = 0
        self._loop = loop
        self._context = contextvars.copy_context()
        self._context.run(_PROCESS.set, self)
        self._tasks: weakref.WeakSet[SimTask[Any]] = weakref.WeakSet()
        self._hooks: list[Callable[[], object]] = []
        self._replies: dict[asyncio.Future[Any], None] = {}
        self._crash_step: int | None = None
        self.is_paused = False
        self._held: tuple[list[asyncio.Handle], list[asyncio.Handle]] = ([], [])

    def spawn(self, coro: Coroutine[Any, Any, _T], *, name: str | None = None) -> asyncio.Task[_T]:
        """Start a coroutine inside the process. Outsiders wait with `call`: a task frozen by a crash never finishes."""
        if self.crashed:
            coro.close()
            raise ProcessDiedError(f"process {self.name} has crashed; start a new SimProcess")
        return self._loop.create_task(coro, name=name, context=self._context.copy())

    async def call(self, coro: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine inside the process and wait for it outside; `ProcessDiedError` if the process crashes first."""
        task = self.spawn(coro)
        reply: asyncio.Future[None] = self._loop.create_future()
        self._replies[reply] = None
        task.add_done_callback(lambda _: _wake(reply), context=outside_context())
        try:
            await reply
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            self._replies.pop(reply, None)
        if self.crashed:
            # Its answer is lost, and an error in it is not one that went unseen.
            if task.done() and not task.cancelled():
                task.exception()
            raise ProcessDiedError(f"process {self.name} crashed")
        return task.result()

    def on_crash(self, hook: Callable[[], object]) -> None:
        """Run a plain function at the instant of the crash, such as `SimDisk.crash`."""
        self._hooks.append(hook)

    def crash_at_step(self, step: int) -> None:
        """Crash once the process has run this many steps of its own, in place of the step that would follow."""
        if step < self.steps:
            raise ValueError(f"process {self.name} is already at step {self.steps}, past {step}")
        self._crash_step = step

    def pause(self) -> None:
        """Stop it, as SIGSTOP does: nothing of it runs, and what comes for it waits."""
        self.is_paused = True

    def resume(self) -> None:
        """Let it run again: first all that came meanwhile, then the timers that are overdue."""
        self.is_paused = False
        for held in self._held:
            self._loop.queue_again(held, self)
            held.clear()

    def hold(self, handle: asyncio.Handle, *, is_timer: bool) -> None:
        """Called by the loop for each callback that is due while the process is paused."""
        self._held[is_timer].append(handle)

    def crash(self) -> None:
        """Freeze everything of the process, run the hooks, and tell the callers outside. A second crash does nothing."""
        if self.crashed:
            return
        self.crashed = True
        self._loop.freeze(self.tasks())
        for hook in self._hooks:
            hook()
        for reply in self._replies:
            if not reply.done():
                reply.set_exception(ProcessDiedError(f"process {self.name} crashed"))

    def tasks(self) -> list[SimTask[Any]]:
        """Its tasks that are not done."""
        return [task for task in self._tasks if not task.done()]

    def adopt(self, task: SimTask[Any]) -> None:
        """Called by the loop for each task created in the context of the process."""
        self._tasks.add(task)

    def admit_step(self) -> bool:
        """Called by the loop before each callback of the process: whether it may run."""
        if not self.crashed and self.steps == self._crash_step:
            self.crash()
        if self.crashed:
            return False
        self.steps += 1
        return True


class SimLoop(asyncio.BaseEventLoop):
    """The event loop. `steps` counts the callbacks run; `unhandled` gathers what asyncio would only have logged."""

    def __init__(
        self,
        *,
        seed: int = 0,
        timer_slack_s: float = 0.0,
        shuffle_ties: bool = False,
        limits: RunLimits | None = None,
    ) -> None:
        super().__init__()
        self.seed = seed
        self.steps = 0
        self.random = self.fork_random("loop")
        self.unhandled: list[dict[str, Any]] = []
        self._timer_random = self.fork_random("timers")
        self._timer_slack_s = timer_slack_s
        self._shuffle_ties = shuffle_ties
        self._limits = limits or RunLimits()
        self._steps_end = min(self._limits.steps, self._limits.instant_steps)  # as far as time may stand still
        self._now_s = 0.0
        self._serial = 0
        self._stop_asked = False
        self._queue: deque[tuple[asyncio.Handle, SimProcess | None]] = deque()
        self._timers: list[tuple[float, float, int, asyncio.TimerHandle, SimProcess | None]] = []
        self._timers_cancelled = 0
        self._step_hooks: list[tuple[int, int, Callable[[], object]]] = []
        self._frozen: list[SimTask[Any]] = []

    def fork_random(self, name: str) -> random.Random:
        """A stream of its own for each name, so that one component's draws do not shift another's."""
        return random.Random(f"{self.seed}/{name}")

    def time(self) -> float:
        return self._now_s

    async def jitter(self, turns_max: int = 3) -> None:
        """Let others run for a random number of loop turns, none included."""
        for _ in range(self.random.randint(0, turns_max)):
            await asyncio.sleep(0)

    def call_at_step(self, step: int, callback: Callable[[], object]) -> None:
        """Run a plain function between two callbacks, once exactly `step` callbacks have run."""
        if step < self.steps:
            raise ValueError(f"the loop is already at step {self.steps}, past {step}")
        heapq.heappush(self._step_hooks, (step, self._next_serial(), callback))

    def freeze(self, tasks: Iterable[SimTask[Any]]) -> None:
        """Keep tasks alive but never run them: were they collected, their `finally` blocks would run."""
        self._frozen.extend(tasks)

    def queue_again(self, handles: Iterable[asyncio.Handle], process: SimProcess) -> None:
        """Run the callbacks that a paused process was owed, in this order."""
        self._queue.extend((handle, process) for handle in handles)

    def pending_tasks(self) -> list[SimTask[Any]]:
        """Every task that is neither done nor frozen, oldest first."""
        tasks = (task for task in asyncio.all_tasks(self) if isinstance(task, SimTask) and not task.frozen)
        return sorted(tasks, key=lambda task: task.serial)

    def cancel_leftovers(self) -> None:
        """Cancel what still runs and let it unwind, with an allowance of its own of steps and time."""
        self._steps_max = self.steps + _CLEANUP_STEPS_MAX
        self._time_s_max = self._now_s + _CLEANUP_TIME_S_MAX
        leftovers = self.pending_tasks()
        for task in leftovers:
            task.cancel()
        if leftovers:
            self.run_until_complete(asyncio.wait(leftovers))

    # What asyncio asks of a loop.

    def call_soon(
        self, callback: Callable[[Unpack[_Ts]], object], *args: *_Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        self._check_open()
        handle = asyncio.Handle(callback, args, self, context)
        self._queue.append((handle, _process_of(context)))
        return handle

    # There is only one thread.
    call_soon_threadsafe = call_soon

    def call_at(
        self, when: float, callback: Callable[[Unpack[_Ts]], object], *args: *_Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        self._check_open()
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        fires_at = when + (self._timer_random.uniform(0, self._timer_slack_s) if self._timer_slack_s else 0.0)
        tie = self._timer_random.random() if self._shuffle_ties else 0.0
        heapq.heappush(self._timers, (fires_at, tie, self._next_serial(), handle, _process_of(context)))
        # As the base class does: tells a cancellation whether the timer still waits in the heap.
        handle._scheduled = True  # type: ignore[attr-defined]
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(self._next_serial(), self)

    def create_task(  # type: ignore[override]  # asyncio also lets generators in; nothing here makes any
        self, coro: Coroutine[Any, Any, _T], *, name: str | None = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[_T]:
        serial = self._next_serial()
        process = _process_of(context)
        task = SimTask(coro, serial=serial, loop=self, name=name or f"sim-{serial}", context=context, process=process)
        if process is not None:
            process.adopt(task)
        return task

    def run_in_executor(self, executor: Executor | None, func: Callable[[Unpack[_Ts]], _T], *args: *_Ts) -> asyncio.Future[_T]:
        """Refused: a thread would bring real time and real races into the run."""
        raise SimulationError(f"no threads in a simulation: {func!r} must not go to an executor; inject a simulated one")

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        culprit = context.get("task") or context.get("future")
        dead = isinstance(context.get("exception"), SimCrashed) or (isinstance(culprit, SimTask) and culprit.frozen)
        if not dead and not self.is_closed():
            self.unhandled.append(context)

    def stop(self) -> None:
        self._stop_asked = True
        super().stop()

    def run_forever(self) -> None:
        """Run until stopped, with the collector held so that finalizers run at the same step in every run."""
        collecting = gc.isenabled()
        gc.disable()
        try:
            super().run_forever()
        finally:
            self._stop_asked = False
            if collecting:
                gc.enable()

    def close(self) -> None:
        if self.is_closed():
            return
        self._frozen.extend(self.pending_tasks())
        super().close()
        for task in self._frozen:
            discard(task)
        self._frozen.clear()
        self._queue.clear()
        self._timers.clear()

    # The engine. `_run_once` and `_timer_handle_cancelled` are called by asyncio itself.

    def _run_once(self) -> None:
        """Run callbacks until the loop is asked to stop."""
        while True:
            while self._step_hooks and self._step_hooks[0][0] <= self.steps:
                heapq.heappop(self._step_hooks)[2]()
            if self._timers and self._timers[0][0] <= self._now_s:
                self._wake_timers()
            if not self._queue:
                self._wake_timers()
                if not self._queue:
                    if self._stop_asked:
                        return
                    self._jump()
                    continue
            self._run_next()
            if self._stop_asked:
                return

    def _run_next(self) -> None:
        handle, process = self._queue.popleft()
        if process is not None and process.is_paused and not process.crashed:
            process.hold(handle, is_timer=False)
            return
        if handle._cancelled or (process is not None and not process.admit_step()):
            return
        self.steps += 1
        handle._run()
        if self.steps >= self._steps_end:
            stands_still = self.steps < self._limits.steps
            problem = f"time stands still for {self._limits.instant_steps} steps" if stands_still else "no end"
            raise RunawayError(self._describe(problem))
        if self.steps % _STEPS_PER_COLLECTION == 0:
            self._collect()

    def _collect(self) -> None:
        """Collect cyclic garbage, and end a run that piles up what is not garbage."""
        gc.collect(2 if self.steps % _STEPS_PER_FULL_COLLECTION == 0 else 1)
        held = memory_held()
        if held > self._limits.memory_bytes:
            raise RunawayError(self._describe(f"{held >> 20} MiB of memory are in use"))

    def _wake_timers(self) -> None:
        """Queue the timers that are due, and drop the dead ones in front so that time does not jump to them."""
        while self._timers:
            fires_at, _, _, handle, process = self._timers[0]
            dead = handle.cancelled() or (process is not None and process.crashed)
            if not dead and fires_at > self._now_s:
                return
            heapq.heappop(self._timers)
            handle._scheduled = False  # type: ignore[attr-defined]
            if handle.cancelled():
                self._timers_cancelled -= 1
            if process is not None and process.is_paused and not dead:
                process.hold(handle, is_timer=True)
            elif not dead:
                self._queue.append((handle, process))

    def _jump(self) -> None:
        if not self._timers:
            raise DeadlockError(self._describe("nothing is ready and no timer is left"))
        if self._timers[0][0] > self._limits.time_s:
            raise RunawayError(self._describe(f"the next timer is past the limit of {self._limits.time_s} s"))
        self._now_s = self._timers[0][0]
        self._steps_end = min(self._limits.steps, self.steps + self._limits.instant_steps)
        self._wake_timers()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Rebuild the heap when most of it is cancelled, as with long deadlines of short waits."""
        if not handle._scheduled:  # type: ignore[attr-defined]
            return
        self._timers_cancelled += 1
        if self._timers_cancelled > max(_TIMERS_CANCELLED_MIN, len(self._timers) // 2):
            # Its cancelled flag is set only after this call returns.
            self._timers = [timer for timer in self._timers if timer[3] is not handle and not timer[3].cancelled()]
            heapq.heapify(self._timers)
            self._timers_cancelled = 0

    def _describe(self, problem: str) -> str:
        tasks = self.pending_tasks()
        lines = [f"  {task.get_name()}: {waiting_at(task)}" for task in tasks[:_TASKS_TOLD]]
        if len(tasks) > _TASKS_TOLD:
            lines.append(f"  and {len(tasks) - _TASKS_TOLD} more")
        head = f"{problem} at step {self.steps}, time {self._now_s:.6f} s, seed {self.seed}; pending tasks:"
        return "\n".join([head, *(lines or ["  none"])])

    def _next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def _check_open(self) -> None:
        if self._closed:  # type: ignore[attr-defined]
            raise RuntimeError("Event loop is closed")


def _process_of(context: contextvars.Context | None) -> SimProcess | None:
    return _PROCESS.get() if context is None else context.get(_PROCESS)


def _wake(reply: asyncio.Future[None]) -> None:
    if not reply.done():
        reply.set_result(None)


def run_simulation(
    main: Coroutine[Any, Any, _T],
    *,
    seed: int = 0,
    timer_slack_s: float = 0.0,
    shuffle_ties: bool = False,
    limits: RunLimits | None = None,
) -> _T:
    """Run a coroutine on a fresh `SimLoop` to its end, cancel what it left behind, and fail if anything failed unseen."""
    loop = SimLoop(seed=seed, timer_slack_s=timer_slack_s, shuffle_ties=shuffle_ties, limits=limits)
    try:
        result = loop.run_until_complete(main)
    except BaseException:
        # The first failure is the one to tell; what hangs after it is closed with the loop.
        with contextlib.suppress(StuckError):
            loop.cancel_leftovers()
        raise
    else:
        loop.cancel_leftovers()
    finally:
        loop.close()
    if loop.unhandled:
        first = loop.unhandled[0]
        told = f"{len(loop.unhandled)} unhandled failures in seed {seed}; the first: {first.get('message')}"
        raise SimulationError(told) from first.get("exception")
    return result
