"""Keeps deployed pipelines: stores them, starts them with the node, and does what is asked of them."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from penstock.broker import Broker
from penstock.core.errors import PenstockError
from penstock.core.periodic import cancel_tasks
from penstock.server.config import NodeConfig
from penstock.server.pipelines.application import Application
from penstock.server.pipelines.dead_letter_replay import DeadLetterReplay, ReplayStatus
from penstock.server.pipelines.deployment import NAME, Deployment, Wanted, check_files
from penstock.server.pipelines.deployment_log import DeploymentLog
from penstock.server.pipelines.driver_process import child_environment
from penstock.server.pipelines.errors import DeploymentError, NoDriverError, UnknownDeploymentError
from penstock.server.pipelines.pipeline_status import FAILED, PipelineStatus
from penstock.server.pipelines.workspace import Workspace

log = logging.getLogger(__name__)

CHECK_PROGRAM: Final = (sys.executable, "-m", "penstock.spark.pipelines.deployment_check")
REPLAY_PROGRAM: Final = (sys.executable, "-m", "penstock.spark.pipelines.dead_letter_replay")
CHECK_S: Final = 120.0
READ_AGAIN_S: Final = 1.0
TRIM_EVERY_S: Final = 30.0
APPLICATIONS_MAX: Final = 32

CheckName = Callable[[str], Awaitable[None]]


class DeploymentOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be deployed: the files of a pipeline, the main one of them, and where they come from."""

    file: str
    files: dict[str, bytes]
    directory: str
    application: str | None = None
    master: str | None = None
    conf: dict[str, str] = msgspec.field(default_factory=dict)
    is_reset: bool = False


class DeploymentKeeper:
    """The deployments of a node. `start` it when the broker serves, `stop` it before the broker stops."""

    def __init__(
        self,
        broker: Broker,
        config: NodeConfig,
        brokers: Callable[[], str],
        random: Random,
    ) -> None:
        self._config = config
        self._clock = broker.clock
        self._brokers = brokers
        self._random = random
        self._log = DeploymentLog(broker)
        self._workspace = Workspace(config.data_dir)
        self._deployments: dict[str, Deployment] = {}
        self._statuses: dict[str, PipelineStatus] = {}
        self._applications: dict[str, Application] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._replays: dict[str, DeadLetterReplay] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._changing = asyncio.Lock()
        self._ready = asyncio.Event()

    def start(self) -> None:
        """Read the deployments and run them, in the background."""
        self._spawn(self._begin(), "deployed pipelines")
        self._spawn(self._trim_logs(), "logs of pipelines")

    async def stop(self) -> None:
        """Stop all pipelines after their batches in flight, which `drain_timeout_s` bounds."""
        await cancel_tasks(self._background)
        applications = self._applications.values()
        await asyncio.gather(*(application.close(self._config.drain_timeout_s) for application in applications))
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def deployed(self) -> dict[str, tuple[Deployment, PipelineStatus]]:
        """All deployments and how they are doing, by name."""
        return {name: (self._deployments[name], self._statuses[name]) for name in sorted(self._deployments)}

    def get(self, name: str) -> tuple[Deployment, PipelineStatus]:
        """One deployment; UnknownDeploymentError if there is none."""
        deployment = self._deployments.get(name)
        if deployment is None:
            known = ", ".join(sorted(self._deployments)[:5])
            hint = f"there are {known}" if known else "`penstock pipeline deploy FILE` deploys one"
            raise UnknownDeploymentError(f"no pipeline {name!r} is deployed here; {hint}")
        return deployment, self._statuses[name]

    def check_allowed(self) -> None:
        """Raise NoDriverError if this node may not, or cannot, run pipelines. A pipeline runs code with the rights of the
        node's user."""
        wanted = self._config.pipelines
        if wanted == "off":
            raise NoDriverError("this node does not run pipelines: its setting pipelines is off; set it to auto or on")
        if wanted == "auto" and not self._config.sasl and not _is_loopback(self._config.host):
            raise NoDriverError(
                f"this node lets everyone in who reaches {self._config.host}, and a pipeline can run any code here; set sasl, or "
                "set pipelines to on if you trust that network"
            )
        missing = next((name for name in ("pyspark", "pyarrow", "yaml") if find_spec(name) is None), None)
        if missing is not None:
            raise NoDriverError(
                f"this node cannot run pipelines: {missing} is not installed where it runs; pip install 'penstock[spark]' there, "
                "and start it again"
            )

    async def deploy(self, order: DeploymentOrder, principal: str, check_new: CheckName | None = None) -> Deployment:
        """Check a pipeline, store it and run it; one that is deployed already is upgraded. Raises DeploymentError with the reason
        if it is not accepted, and what `check_new` raises for the name of one that is not deployed yet."""
        self.check_allowed()
        check_files(order.file, order.files)
        await self._wait_ready()
        async with self._changing:
            staged = await asyncio.to_thread(self._workspace.stage, order.files)
            try:
                deployment = await self._checked(order, staged, principal)
                if check_new is not None and deployment.name not in self._deployments:
                    await check_new(deployment.name)
            finally:
                await asyncio.to_thread(shutil.rmtree, staged, True)
            await self._store(deployment)
        return deployment

    async def want(self, name: str, wanted: Wanted) -> Deployment:
        """Have a pipeline run, pause or stop."""
        await self._wait_ready()
        if wanted == "running":
            self.check_allowed()
        async with self._changing:
            deployment, _ = self.get(name)
            deployment = msgspec.structs.replace(deployment, wanted=wanted)
            await self._store(deployment)
        return deployment

    async def undeploy(self, name: str) -> None:
        """Stop a pipeline and forget it. Its target, its offsets and its data stay."""
        await self._wait_ready()
        async with self._changing:
            deployment, _ = self.get(name)
            await self._log.remove(name)
            del self._deployments[name]
            del self._statuses[name]
            self._replays.pop(name, None)
            self._leave(deployment)
            await asyncio.to_thread(self._workspace.remove, name)

    async def replay_dead_letters(self, name: str) -> ReplayStatus:
        """Start to send the dead letters of a pipeline back to where they came from, each once, unless that runs already."""
        self.check_allowed()
        async with self._changing:
            deployment, _ = self.get(name)
            running = self._replays.get(name)
            if running is None or running.status.state != "running":
                directory = await asyncio.to_thread(self._workspace.write, deployment)
                file = self._workspace.deployed_file(deployment, directory, self._brokers())
                running = self._replays[name] = DeadLetterReplay(REPLAY_PROGRAM, {"file": file}, self._clock)
                self._spawn(running.run(), f"replay of the dead letters of {name}")
        return running.status

    def replay_status(self, name: str) -> ReplayStatus | None:
        """The last replay of a pipeline's dead letters; None if there was none since the node started."""
        self.get(name)
        replay = self._replays.get(name)
        return None if replay is None else replay.status

    async def read_log(self, name: str, offset: int | None, size: int) -> tuple[bytes, int]:
        """Some of the log of a pipeline's driver from an offset on, without one the end of it; and the offset after that."""
        deployment, _ = self.get(name)
        return await asyncio.to_thread(_read_log, self._workspace.log_of(deployment), offset, size)

    async def _wait_ready(self) -> None:
        """Until the stored deployments are known."""
        await self._ready.wait()

    async def _read(self) -> dict[str, Deployment]:
        while True:
            try:
                return await self._log.read()
            except PenstockError as error:
                log.warning("the deployed pipelines are not known yet: %s", error)
                await asyncio.sleep(READ_AGAIN_S)

    async def _begin(self) -> None:
        deployments = await self._read()
        refusal = self._refusal()
        if refusal is not None and deployments:
            log.error("%d deployed pipelines do not run: %s", len(deployments), refusal)
        for name, deployment in deployments.items():
            self._deployments[name] = deployment
            status = self._statuses[name] = PipelineStatus(since_ms=int(self._clock.wall() * 1000))
            if refusal is None:
                self._apply(deployment)
            else:
                status.state, status.last_error = FAILED, refusal
        self._ready.set()

    def _refusal(self) -> str | None:
        try:
            self.check_allowed()
        except NoDriverError as error:
            return str(error)
        return None

    async def _checked(self, order: DeploymentOrder, staged: Path, principal: str) -> Deployment:
        """The deployment that an order makes."""
        draft = Deployment(
            name="",
            kind="",
            version=1,
            deployed_ms=int(self._clock.wall() * 1000),
            deployed_by=principal,
            wanted="running",
            file=order.file,
            files=order.files,
            directory=order.directory,
            application="",
            master=order.master,
            conf=order.conf,
        )
        described = await self._describe(draft, staged, None, is_reset=False)
        before = self._deployments.get(described["name"])
        if before is not None:
            described = await self._describe(draft, staged, before, is_reset=order.is_reset)
        application = described["application"] if order.application is None else order.application
        if application and not NAME.fullmatch(application):
            raise DeploymentError(f"application {application!r} is no name: letters, digits, '.', '_' and '-', at most 100")
        deployment = msgspec.structs.replace(
            draft,
            **{**described, "application": application},
            version=1 if before is None else before.version + 1,
            reset=self._random.randbytes(16).hex() if order.is_reset else "" if before is None else before.reset,
        )
        self._check_application(deployment)
        return deployment

    async def _describe(self, draft: Deployment, staged: Path, before: Deployment | None, *, is_reset: bool) -> dict[str, Any]:
        order: dict[str, Any] = {
            "file": self._workspace.deployed_file(draft, staged, self._brokers()),
            "before": None,
            "is_reset": is_reset,
            "master": draft.master,
            "conf": draft.conf,
        }
        if before is not None:
            directory = await asyncio.to_thread(self._workspace.write, before)
            order["before"] = self._workspace.deployed_file(before, directory, self._brokers())
        try:
            return await self._ask(CHECK_PROGRAM, order)
        except DeploymentError as error:
            raise DeploymentError(str(error).replace(f"{staged}/", "")) from error

    def _check_application(self, deployment: Deployment) -> None:
        """DeploymentError if the application that it is to share runs otherwise, or is one too many."""
        application = self._applications.get(_key(deployment))
        if application is None:
            if len(self._applications) >= APPLICATIONS_MAX:
                raise DeploymentError(
                    f"{APPLICATIONS_MAX} Spark applications run here already; let pipelines share one with --application NAME"
                )
            return
        for other in application.deployments:
            if other.name != deployment.name and (other.master, other.conf) != (deployment.master, deployment.conf):
                raise DeploymentError(
                    f"application {deployment.application!r} was started by pipeline {other.name!r} with another --master or "
                    "--conf; give the same ones, or another application"
                )

    async def _ask(self, program: tuple[str, ...], order: dict[str, Any]) -> dict[str, Any]:
        """What a child process answers; DeploymentError if it refuses or fails."""
        process = await asyncio.create_subprocess_exec(
            *program,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=child_environment(),
        )
        try:
            async with asyncio.timeout(CHECK_S):
                told, trouble = await process.communicate(json.dumps(order).encode())
        except TimeoutError as error:
            raise DeploymentError(f"the pipeline could not be checked within {CHECK_S:.0f} s; is its broker reached?") from error
        finally:
            with suppress(ProcessLookupError):
                process.kill()
        try:
            answer: dict[str, Any] = json.loads(told.splitlines()[-1])
        except (ValueError, IndexError) as error:
            last = trouble.decode(errors="replace").strip().rpartition("\n")[2]
            raise DeploymentError(f"the pipeline could not be checked: {last or f'exit code {process.returncode}'}") from error
        if "error" in answer:
            raise DeploymentError(str(answer["error"]))
        return answer

    async def _store(self, deployment: Deployment) -> None:
        await self._log.store(deployment)
        before = self._deployments.get(deployment.name)
        if before is not None and _key(before) != _key(deployment):
            self._leave(before)
        self._deployments[deployment.name] = deployment
        self._statuses.setdefault(deployment.name, PipelineStatus(since_ms=int(self._clock.wall() * 1000)))
        self._apply(deployment)

    def _leave(self, deployment: Deployment) -> None:
        application = self._applications.get(_key(deployment))
        if application is not None:
            application.remove(deployment.name)

    def _apply(self, deployment: Deployment) -> None:
        for key in [key for key, other in self._applications.items() if other.is_over and key != _key(deployment)]:
            self._tasks.pop(key).cancel()
            del self._applications[key]
        application = self._applications.get(_key(deployment))
        if application is None:
            application = Application(self._workspace, self._clock, self._brokers, self._note_finished)
            self._applications[_key(deployment)] = application
            name = f"application {deployment.application or deployment.name}"
            self._tasks[_key(deployment)] = asyncio.create_task(application.serve(), name=name)
        application.put(deployment, self._statuses[deployment.name])

    def _note_finished(self, finished: Deployment) -> None:
        self._spawn(self._store_finished(finished), f"finished pipeline {finished.name}")

    async def _store_finished(self, finished: Deployment) -> None:
        """Store that a pipeline has ended by itself, so that it is not run again at the next start."""
        async with self._changing:
            current = self._deployments.get(finished.name)
            if current is not None and current.version == finished.version and current.wanted == "running":
                try:
                    await self._store(msgspec.structs.replace(current, wanted="finished"))
                except PenstockError as error:
                    log.warning("pipeline %s has finished, and runs again at the next start: %s", finished.name, error)

    async def _trim_logs(self) -> None:
        while True:
            await asyncio.sleep(TRIM_EVERY_S)
            for deployment in list(self._deployments.values()):
                try:
                    await asyncio.to_thread(self._workspace.log_of, deployment)
                except OSError as error:
                    log.warning("the log of pipeline %s cannot be trimmed: %s", deployment.name, error)

    def _spawn(self, work: Any, name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _key(deployment: Deployment) -> str:
    return f"applications/{deployment.application}" if deployment.application else deployment.name


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _read_log(path: Path, offset: int | None, size: int) -> tuple[bytes, int]:
    try:
        with path.open("rb") as file:
            end = file.seek(0, 2)
            # A log that was trimmed is shorter than what was read of it.
            begin = max(end - size, 0) if offset is None or offset > end else offset
            file.seek(begin)
            if offset is None and begin:
                file.readline()
            text = file.read(size)
            return text, file.tell()
    except FileNotFoundError:
        return b"", 0
