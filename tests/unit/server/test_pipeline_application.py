"""An application of deployed pipelines: its driver is restarted, and does what is wanted. The driver is a small program here that
speaks as the real one does; that one is in tests/spark/pipelines/test_deploy.py."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from penstock.core.clock import SystemClock
from penstock.server.pipelines import driver_process
from penstock.server.pipelines.application import Application
from penstock.server.pipelines.deployment import Deployment, Wanted
from penstock.server.pipelines.pipeline_status import PipelineStatus
from penstock.server.pipelines.workspace import Workspace

# A pipeline whose file says `fail`, `bad` or `end` does that; any other runs until it is stopped.
DRIVER = """
import json, pathlib, sys

def tell(**event):
    print(json.dumps(event), flush=True)

versions = {}
sys.stdin.readline()
for line in sys.stdin:
    order = json.loads(line)
    if "stop" in order:
        tell(ended=order["stop"], version=versions[order["stop"]], state="stopped", error=None, is_final=True)
        continue
    name, version = order["run"], order["version"]
    versions[name] = version
    text = pathlib.Path(order["file"]["path"]).read_text()
    if text in ("fail", "bad"):
        tell(ended=name, version=version, state="failed", error=f"it is {text}", is_final=text == "bad")
        continue
    tell(running=name, version=version)
    if text == "end":
        tell(ended=name, version=version, state="finished", error=None, is_final=True)
"""


def deployment(name: str, text: str = "", version: int = 1, wanted: Wanted = "running") -> Deployment:
    return Deployment(
        name=name,
        kind="transform",
        version=version,
        deployed_ms=0,
        deployed_by="User:ada",
        wanted=wanted,
        file="p.yaml",
        files={"p.yaml": text.encode()},
        directory="/",
        application="shared",
    )


class Served:
    """An application, and what its pipelines are doing."""

    def __init__(self, application: Application) -> None:
        self.application = application
        self.statuses: dict[str, PipelineStatus] = {}
        self.finished: list[Deployment] = []

    def put(self, deployment: Deployment) -> PipelineStatus:
        status = self.statuses.setdefault(deployment.name, PipelineStatus())
        self.application.put(deployment, status)
        return status


@asynccontextmanager
async def served(path: Path) -> AsyncIterator[Served]:
    finished: list[Deployment] = []
    running = Served(Application(Workspace(path), SystemClock(), lambda: "127.0.0.1:9092", finished.append))
    running.finished = finished
    task = asyncio.create_task(running.application.serve())
    try:
        yield running
    finally:
        await running.application.close(10.0)
        await task


async def until(check: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not check():  # noqa: ASYNC110 - what it waits for is another process
            await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_process, "PROGRAM", (sys.executable, "-c", DRIVER))


def test_pipelines_of_one_application_share_a_driver(tmp_path: Path) -> None:
    async def check() -> None:
        async with served(tmp_path) as running:
            one = running.put(deployment("one"))
            await until(lambda: one.state == "running")
            other = running.put(deployment("other"))
            await until(lambda: other.state == "running")
            pid = one.pid
            assert pid is not None
            assert pid == other.pid
            running.application.remove("other")
            await until(lambda: len(running.application.deployments) == 1)
            assert one.state == "running"
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    asyncio.run(check())


def test_a_killed_driver_is_started_again_with_all_that_it_ran(tmp_path: Path) -> None:
    async def check() -> None:
        async with served(tmp_path) as running:
            one, other = running.put(deployment("one")), running.put(deployment("other"))
            await until(lambda: one.state == other.state == "running")
            first = one.pid
            assert first is not None
            os.kill(first, signal.SIGKILL)
            await until(lambda: one.restarts == other.restarts == 1 and one.state == other.state == "running")
            assert one.pid == other.pid != first

    asyncio.run(check())


def test_a_paused_pipeline_leaves_the_driver_and_a_stopped_one_ends_it(tmp_path: Path) -> None:
    async def check() -> None:
        async with served(tmp_path) as running:
            one = running.put(deployment("one"))
            await until(lambda: one.state == "running")
            pid = one.pid
            running.put(deployment("one", wanted="paused"))
            await until(lambda: one.state == "paused")
            assert one.pid == pid
            running.put(deployment("one"))
            await until(lambda: one.state == "running")
            assert one.pid == pid
            running.put(deployment("one", wanted="stopped"))
            await until(lambda: one.state == "stopped" and one.pid is None)

    asyncio.run(check())


def test_an_upgrade_stops_the_old_version_and_runs_the_new_one(tmp_path: Path) -> None:
    async def check() -> None:
        async with served(tmp_path) as running:
            one = running.put(deployment("one"))
            await until(lambda: one.state == "running")
            running.put(deployment("one", "end", version=2))
            await until(lambda: running.finished)
            assert running.finished[0].version == 2
            assert one.restarts == 0

    asyncio.run(check())


def test_what_a_retry_cannot_fix_is_not_tried_again_before_it_is_deployed_anew(tmp_path: Path) -> None:
    async def check() -> None:
        async with served(tmp_path) as running:
            one, other = running.put(deployment("one", "bad")), running.put(deployment("other"))
            await until(lambda: one.state == "failed" and other.state == "running")
            assert (one.last_error, one.restarts) == ("it is bad", 0)
            running.put(deployment("one", version=2))
            await until(lambda: one.state == "running")
            assert one.last_error is None

    asyncio.run(check())


def test_a_failing_pipeline_is_tried_again_ever_more_slowly(tmp_path: Path) -> None:
    async def check() -> None:
        async with served(tmp_path) as running:
            one = running.put(deployment("one", "fail"))
            await until(lambda: one.restarts >= 3)
            assert one.state == "restarting"
            assert one.last_error == "it is fail"
            assert one.retry_ms is not None

    asyncio.run(check())


def test_a_deployment_is_read_as_it_was_stored() -> None:
    from penstock.server.pipelines.deployment import unpack_deployment

    stored = msgspec.structs.replace(deployment("one", "text"), files={"p.yaml": b"\0\xff"}, conf={"a": "b"}, reset="r")
    assert unpack_deployment(stored.pack()) == stored
