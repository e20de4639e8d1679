"""One Spark application with one or several deployed pipelines: its driver is kept running, and does what is wanted of it."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.core.clock import Clock
from penstock.server.pipelines import pipeline_status as states
from penstock.server.pipelines.deployment import Deployment
from penstock.server.pipelines.driver_process import DriverProcess
from penstock.server.pipelines.pipeline_status import PipelineStatus
from penstock.server.pipelines.workspace import Workspace
from penstock.server.supervisor.restart_backoff import RestartBackoff

log = logging.getLogger(__name__)

PAUSE_S_MAX: Final = 300.0
STEADY_S: Final = 60.0  # Spark alone takes ten seconds to start
END_S: Final = 20.0
STEP_AGAIN_S: Final = 1.0


def _backoff() -> RestartBackoff:
    return RestartBackoff(PAUSE_S_MAX, STEADY_S)


@dataclass(slots=True)
class _Member:
    """A pipeline of the application. `told` is the version that the driver was ordered to run, and `began_s` since when."""

    deployment: Deployment
    status: PipelineStatus
    told: int | None = None
    began_s: float = 0.0
    is_stopping: bool = False
    failed: int | None = None  # the version that is not tried again
    due_s: float = 0.0
    backoff: RestartBackoff = field(default_factory=_backoff)

    @property
    def is_wanted(self) -> bool:
        return self.deployment.wanted == "running" and self.failed != self.deployment.version


class Application:
    """Runs `serve` as a task; `put` and `remove` say what is wanted, and the rest follows."""

    def __init__(
        self,
        workspace: Workspace,
        clock: Clock,
        brokers: Callable[[], str],
        on_finished: Callable[[Deployment], None],
    ) -> None:
        self._workspace = workspace
        self._clock = clock
        self._brokers = brokers
        self._on_finished = on_finished
        self._members: dict[str, _Member] = {}
        self._removed: set[str] = set()  # that the driver still runs
        self._driver: DriverProcess | None = None
        self._driver_due_s = 0.0
        self._driver_began_s = 0.0
        self._driver_backoff = _backoff()
        self._is_closing = False
        self._wake = asyncio.Event()
        self._ended = asyncio.Event()  # no driver runs
        self._ended.set()
        self._listening: asyncio.Task[None] | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing is left of it."""
        return not self._members and self._driver is None

    @property
    def deployments(self) -> list[Deployment]:
        """Its pipelines."""
        return [member.deployment for member in self._members.values()]

    def put(self, deployment: Deployment, status: PipelineStatus) -> None:
        """Add a pipeline, or change what is wanted of it. A failed one is tried again."""
        member = self._members.get(deployment.name)
        if member is None:
            member = self._members[deployment.name] = _Member(deployment, status)
        member.deployment, member.status = deployment, status
        status.pid = None if self._driver is None else self._driver.pid
        member.failed, member.due_s, member.backoff = None, 0.0, _backoff()
        self._driver_due_s = 0.0
        if member.told is None:
            self._note(member, states.STARTING if deployment.wanted == "running" else deployment.wanted)
        self._wake.set()

    def remove(self, name: str) -> None:
        """Stop a pipeline and forget it."""
        member = self._members.pop(name, None)
        if member is not None and member.told is not None:
            self._removed.add(name)
            if not member.is_stopping:
                self._send({"stop": name})
        self._wake.set()

    async def serve(self) -> None:
        """Do what is wanted until the application is closed and its driver has ended."""
        while not (self._is_closing and self._driver is None):
            self._wake.clear()
            try:
                await self._step(self._clock.monotonic())
            except Exception:  # the other applications and the node go on
                log.exception("an application of pipelines is looked after again in %.0f s", STEP_AGAIN_S)
                await asyncio.sleep(STEP_AGAIN_S)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s(self._clock.monotonic())):
                    await self._wake.wait()

    async def _step(self, now: float) -> None:
        if self._needs_driver() and self._driver is None and now >= self._driver_due_s:
            await self._start_driver()
        if self._driver is None:
            return
        await self._reconcile(now)
        if not self._needs_driver() and not self._is_busy():
            await self._end_driver()
            self._wake.set()

    async def close(self, timeout_s: float) -> None:
        """Stop all pipelines after their batches in flight, then the driver; `serve` returns. What takes longer is killed."""
        self._is_closing = True
        self._wake.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._ended.wait()
        if self._driver is not None:
            self._driver.kill()
        if self._listening is not None:
            await self._listening

    def _needs_driver(self) -> bool:
        """Whether there is something to run; a paused pipeline leaves a driver that runs as it is."""
        if self._is_closing:
            return False
        wanted = [member for member in self._members.values() if member.is_wanted]
        paused = any(member.deployment.wanted == "paused" for member in self._members.values())
        return bool(wanted) or (paused and self._driver is not None)

    def _is_busy(self) -> bool:
        return bool(self._removed) or any(member.told is not None for member in self._members.values())

    def _pause_s(self, now: float) -> float | None:
        """How long until something is due by itself."""
        due = [member.due_s for member in self._members.values() if member.is_wanted and member.told is None]
        if not due or self._is_closing:
            return None
        return max(max(min(due), self._driver_due_s) - now, 0.0) if self._driver is None else max(min(due) - now, 0.0)

    async def _reconcile(self, now: float) -> None:
        for name, member in list(self._members.items()):
            if member.told is not None:
                is_right = member.is_wanted and member.told == member.deployment.version and not self._is_closing
                if not is_right and not member.is_stopping:
                    member.is_stopping = True
                    self._note(member, states.STOPPING)
                    self._send({"stop": name})
            elif member.is_wanted and now >= member.due_s and name not in self._removed and not self._is_closing:
                await self._run(member)

    async def _run(self, member: _Member) -> None:
        deployment = member.deployment
        try:
            directory = await asyncio.to_thread(self._workspace.write, deployment)
        except OSError as error:
            self._failed(member, f"its files cannot be written: {error}", is_final=False)
            return
        member.told, member.began_s, member.is_stopping = deployment.version, self._clock.monotonic(), False
        file = self._workspace.deployed_file(deployment, directory, self._brokers())
        self._send({"run": deployment.name, "version": deployment.version, "file": file})

    async def _start_driver(self) -> None:
        first = next(member.deployment for member in self._members.values() if member.is_wanted)
        self._driver_began_s = self._clock.monotonic()
        try:
            log_path = await asyncio.to_thread(self._workspace.log_of, first)
            self._driver = driver = await DriverProcess.start(log_path)
            self._ended.clear()
        except OSError as error:
            self._driver_due_s = self._clock.monotonic() + self._driver_backoff.next_pause_s(0.0)
            for member in self._members.values():
                if member.is_wanted:
                    self._note(member, states.RESTARTING, f"the driver cannot be started: {error}")
            return
        self._listening = asyncio.create_task(self._listen(driver), name=f"driver {driver.pid}")
        name = first.application or first.name
        self._send({"application": name, "master": first.master, "conf": first.conf})
        for member in self._members.values():
            member.status.pid = driver.pid

    async def _end_driver(self) -> None:
        assert self._driver is not None
        with suppress(TimeoutError):
            await self._driver.close(END_S)
        if self._listening is not None:
            await self._listening

    async def _listen(self, driver: DriverProcess) -> None:
        async for event in driver.events():
            try:
                self._take(event)
            except (KeyError, TypeError):
                log.exception("an event of driver %d is not understood: %r", driver.pid, event)
        code = await driver.wait()
        driver.kill()  # what it has started may outlive it
        self._driver_ended(code)
        self._wake.set()

    def _take(self, event: Mapping[str, Any]) -> None:
        if "running" in event:
            member = self._members.get(event["running"])
            if member is not None and not member.is_stopping:
                self._note(member, states.RUNNING, member.status.last_error)
            return
        name = event["ended"]
        self._removed.discard(name)
        member = self._members.get(name)
        self._wake.set()
        if member is None or member.told is None:
            return
        member.told, was_stopping, member.is_stopping = None, member.is_stopping, False
        if event["state"] == "failed" and not was_stopping:
            self._failed(member, str(event["error"]), is_final=bool(event["is_final"]))
        elif event["state"] == "finished" and event["version"] == member.deployment.version:
            self._note(member, states.FINISHED)
            self._on_finished(member.deployment)
        elif member.is_wanted:
            self._note(member, states.STARTING)
        else:
            self._note(member, states.FAILED if member.failed is not None else member.deployment.wanted)

    def _failed(self, member: _Member, error: str, *, is_final: bool) -> None:
        now = self._clock.monotonic()
        name = member.deployment.name
        if is_final:
            member.failed = member.deployment.version
            self._note(member, states.FAILED, error)
            log.error("pipeline %s has failed, and is not tried again before it is resumed or deployed: %s", name, error)
            return
        pause_s = member.backoff.next_pause_s(now - member.began_s)
        member.due_s = now + pause_s
        member.status.restarts += 1
        self._note(member, states.RESTARTING, error)
        member.status.retry_ms = int((self._clock.wall() + pause_s) * 1000)
        log.warning("pipeline %s failed and is tried again in %.1f s: %s", name, pause_s, error)

    def _driver_ended(self, code: int) -> None:
        now = self._clock.monotonic()
        running = [member for member in self._members.values() if member.told is not None]
        self._driver, self._listening = None, None
        self._ended.set()
        self._removed.clear()
        pause_s = 0.0
        if running and not self._is_closing:
            pause_s = self._driver_backoff.next_pause_s(now - self._driver_began_s)
            log.warning("a driver of pipelines has ended: %s; it is started again in %.1f s", _ending(code), pause_s)
        self._driver_due_s = now + pause_s
        for member in self._members.values():
            member.status.pid = None
        for member in running:
            member.told, was_stopping, member.is_stopping = None, member.is_stopping, False
            if not member.is_wanted or self._is_closing:
                self._note(member, member.deployment.wanted if not self._is_closing else states.STOPPED)
            elif was_stopping:
                self._note(member, states.STARTING)
            else:
                member.status.restarts += 1
                self._note(member, states.RESTARTING, f"the driver has ended: {_ending(code)}")
                member.status.retry_ms = int((self._clock.wall() + pause_s) * 1000)

    def _note(self, member: _Member, state: str, error: str | None = None) -> None:
        status = member.status
        if status.state != state:
            status.state, status.since_ms = state, int(self._clock.wall() * 1000)
        status.last_error, status.retry_ms = error, None

    def _send(self, order: Mapping[str, Any]) -> None:
        if self._driver is not None:
            self._driver.send(order)


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}; its log says why"
    name = signal.Signals(-code).name
    return f"killed by {name}" + (", perhaps for lack of memory" if -code == signal.SIGKILL else "")
