"""/pipelines: deploy, pause, resume, stop and undeploy pipelines, read their logs and files, replay their dead letters."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from penstock.broker import Operation
from penstock.server.http.figures import PIPELINES_TOPIC
from penstock.server.http.node_context import NodeContext
from penstock.server.http.pipelines import PipelineNames, PipelineResource, PipelineView
from penstock.server.http.route import Call, Count, Done, Nothing, RequestModel, Resource, ResponseModel, Route
from penstock.server.pipelines import DeploymentError, DeploymentOrder, ReplayStatus, Wanted

LOG_BYTES_MAX = 1 << 20
ALIVE = frozenset({"starting", "running", "waiting", "restarting"})


class NewDeployment(RequestModel, frozen=True, kw_only=True):
    """A pipeline to deploy: the contents of its files in base64, by paths below `directory`, and the main one of them. `is_reset`
    starts it over; `takes_over` fences an instance that was started elsewhere."""

    file: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
    files: dict[str, bytes]
    directory: Annotated[str, msgspec.Meta(max_length=4000)] = ""
    application: str | None = None
    master: str | None = None
    conf: dict[str, str] = msgspec.field(default_factory=dict)
    is_reset: bool = False
    takes_over: bool = False


class LogQuery(RequestModel, frozen=True, kw_only=True):
    """Which part of a log: without an offset its end."""

    offset: Count | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=LOG_BYTES_MAX)] = 64 << 10


class LogView(ResponseModel, frozen=True):
    """A part of a log, and the offset of what follows."""

    text: str
    next_offset: int


class FilesView(ResponseModel, frozen=True):
    """The files of a deployed pipeline as text, the main one first."""

    files: dict[str, str]


class ReplayView(ResponseModel, frozen=True):
    """The replay of dead letters that runs, or ran last since the node started."""

    state: Literal["none", "running", "done", "failed"]
    replayed: Annotated[int, msgspec.Meta(description="dead letters that were sent back to their topics")]
    total: Annotated[int, msgspec.Meta(description="dead letters that it has found; 0 until they are counted")]
    error: str | None
    started_ms: int | None
    ended_ms: int | None


class DeploymentResource(Resource):
    """Deployed pipelines. Changes need ALTER on the cluster, since a pipeline runs any code as the node's user."""

    def __init__(self, context: NodeContext, pipelines: PipelineResource) -> None:
        self._deployments = context.deployments
        self._pipelines = pipelines

    def routes(self) -> list[Route]:
        """The routes of this resource."""
        pipeline_path = "/pipelines/{name}"
        replay_path = f"{pipeline_path}/dead-letters/replay"
        return [
            Route("POST", "/pipelines", self.deploy, "deploy a pipeline, or upgrade the one of its name", (409, 422)),
            Route("POST", f"{pipeline_path}/pause", self.pause, "stop after the current batch; Spark keeps running", (404, 422)),
            Route("POST", f"{pipeline_path}/stop", self.stop, "stop after the current batch, and Spark with it", (404, 422)),
            Route(
                "POST",
                f"{pipeline_path}/resume",
                self.resume,
                "run a pipeline that is paused, stopped, finished or failed",
                (404, 409),
            ),
            Route("DELETE", pipeline_path, self.undeploy, "stop a pipeline and forget it; target and offsets stay", (404,)),
            Route("GET", f"{pipeline_path}/log", self.read_log, "the log of its driver", (404,)),
            Route("GET", f"{pipeline_path}/files", self.show_files, "its files", (404,)),
            Route("POST", replay_path, self.replay, "start to send dead letters back to their topics, each once", (404, 422)),
            Route("GET", replay_path, self.show_replay, "how far the replay of dead letters is", (404,)),
        ]

    async def deploy(self, call: Call[Nothing, Nothing, NewDeployment]) -> PipelineView:
        """POST /pipelines."""
        call.caller.check_cluster(Operation.ALTER)
        given = call.body
        order = DeploymentOrder(
            file=given.file,
            files=given.files,
            directory=given.directory,
            application=given.application,
            master=given.master,
            conf=given.conf,
            is_reset=given.is_reset,
        )
        check_new = None if given.takes_over else self._refuse_second_copy
        deployment = await self._deployments.deploy(order, call.caller.principal, check_new)
        return await self._pipelines.view_of(deployment.name)

    async def _refuse_second_copy(self, name: str) -> None:
        report = (await self._pipelines.reports()).get(name)
        if report is not None and report.state in ALIVE and self._pipelines.view(report).is_alive:
            raise DeploymentError(
                f"pipeline {name!r} runs already, on {report.host} as process {report.pid}; stop that one, or give --take-over "
                "to fence it off"
            )

    async def pause(self, call: Call[PipelineNames, Nothing, Nothing]) -> PipelineView:
        """POST /pipelines/{name}/pause."""
        return await self._want(call, "paused")

    async def stop(self, call: Call[PipelineNames, Nothing, Nothing]) -> PipelineView:
        """POST /pipelines/{name}/stop."""
        return await self._want(call, "stopped")

    async def resume(self, call: Call[PipelineNames, Nothing, Nothing]) -> PipelineView:
        """POST /pipelines/{name}/resume."""
        return await self._want(call, "running")

    async def undeploy(self, call: Call[PipelineNames, Nothing, Nothing]) -> Done:
        """DELETE /pipelines/{name}."""
        call.caller.check_cluster(Operation.ALTER)
        await self._deployments.undeploy(call.names.name)
        return Done()

    async def read_log(self, call: Call[PipelineNames, LogQuery, Nothing]) -> LogView:
        """GET /pipelines/{name}/log."""
        call.caller.check_cluster(Operation.DESCRIBE)
        call.caller.check_topic(Operation.READ, PIPELINES_TOPIC)
        text, after = await self._deployments.read_log(call.names.name, call.query.offset, call.query.limit)
        return LogView(text=text.decode(errors="replace"), next_offset=after)

    async def show_files(self, call: Call[PipelineNames, Nothing, Nothing]) -> FilesView:
        """GET /pipelines/{name}/files."""
        call.caller.check_cluster(Operation.DESCRIBE)
        call.caller.check_topic(Operation.READ, PIPELINES_TOPIC)
        deployment, _ = self._deployments.get(call.names.name)
        paths = sorted(deployment.files, key=lambda path: (path != deployment.file, path))
        return FilesView(files={path: deployment.files[path].decode(errors="replace") for path in paths})

    async def replay(self, call: Call[PipelineNames, Nothing, Nothing]) -> ReplayView:
        """POST /pipelines/{name}/dead-letters/replay."""
        call.caller.check_cluster(Operation.ALTER)
        return _replay_view(await self._deployments.replay_dead_letters(call.names.name))

    async def show_replay(self, call: Call[PipelineNames, Nothing, Nothing]) -> ReplayView:
        """GET /pipelines/{name}/dead-letters/replay."""
        call.caller.check_cluster(Operation.DESCRIBE)
        return _replay_view(self._deployments.replay_status(call.names.name))

    async def _want(self, call: Call[PipelineNames, Nothing, Nothing], wanted: Wanted) -> PipelineView:
        call.caller.check_cluster(Operation.ALTER)
        deployment = await self._deployments.want(call.names.name, wanted)
        return await self._pipelines.view_of(deployment.name)


def _replay_view(status: ReplayStatus | None) -> ReplayView:
    if status is None:
        return ReplayView(state="none", replayed=0, total=0, error=None, started_ms=None, ended_ms=None)
    return ReplayView(
        state=status.state,
        replayed=status.replayed,
        total=status.total,
        error=status.error,
        started_ms=status.started_ms,
        ended_ms=status.ended_ms,
    )
