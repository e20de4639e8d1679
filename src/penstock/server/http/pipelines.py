"""/pipelines: status reports of pipelines, from the compacted topic that their runners write to, and those that are deployed."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec

from penstock.broker import Operation, UnknownTopicError
from penstock.core.errors import UnavailableError
from penstock.server.http.errors import NotFoundError
from penstock.server.http.figures import PIPELINES_TOPIC
from penstock.server.http.message_scan import Budget, Filter, PartitionScan
from penstock.server.http.node_context import NodeContext
from penstock.server.http.readable_partitions import readable_partitions
from penstock.server.http.route import Call, Nothing, Page, Paging, RequestModel, Resource, ResponseModel, Route
from penstock.server.pipelines import Deployment, PipelineStatus

ALIVE_MS: Final = 15_000  # one that runs reports more often than this


class PipelineNames(RequestModel, frozen=True):
    """The pipeline in the path."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]


class PipelineReport(msgspec.Struct, frozen=True, kw_only=True):
    """The last report of a runner, perhaps of another version: missing fields are null, unknown ones are ignored."""

    name: str
    kind: str = ""
    state: str = ""
    run: str | None = None
    host: str | None = None
    pid: int | None = None
    user: str | None = None
    file: str | None = None
    source: Any = None
    target: Any = None
    plan: Any = None
    trigger: Any = None
    started_ms: int | None = None
    updated_ms: int | None = None
    batches: int | None = None
    rows_read: int | None = None
    rows_written: int | None = None
    dead_letters: int | None = None
    late_rows: int | None = None
    empty_rows: int | None = None
    rows_per_s: float | None = None
    last_batch_ms: float | None = None
    lag_rows: int | None = None
    last_error: Any = None
    spark_ui: str | None = None


class DeploymentView(ResponseModel, frozen=True):
    """A pipeline in the node's care: how it is doing (`state`), and what is wanted of it. `restarts` counts since the node
    started; `retry_ms` is when it is started again. Of `conf` only the names are shown."""

    state: str
    wanted: str
    since_ms: int
    restarts: int
    last_error: str | None
    retry_ms: int | None
    pid: int | None
    version: int
    deployed_ms: int
    deployed_by: str
    application: str
    master: str | None
    conf: list[str]
    file: str
    directory: str
    source_topics: list[str]
    target_topic: str | None
    dead_letter_topic: str | None
    dead_letter_messages: Annotated[int | None, msgspec.Meta(description="in that topic now; null while it does not exist")]


class PipelineView(PipelineReport, frozen=True, kw_only=True):
    """A pipeline, whether its runner has reported recently, and its deployment, if it is deployed on this node."""

    is_alive: bool
    deployment: DeploymentView | None = None


def deployment_view(deployment: Deployment, status: PipelineStatus, dead_letters: int | None) -> DeploymentView:
    """A deployment as it is shown."""
    return DeploymentView(
        **asdict(status),
        wanted=deployment.wanted,
        version=deployment.version,
        deployed_ms=deployment.deployed_ms,
        deployed_by=deployment.deployed_by,
        application=deployment.application,
        master=deployment.master,
        conf=sorted(deployment.conf),
        file=deployment.file,
        directory=deployment.directory,
        source_topics=deployment.source_topics,
        target_topic=deployment.target_topic,
        dead_letter_topic=deployment.dead_letter_topic,
        dead_letter_messages=dead_letters,
    )


class PipelineResource(Resource):
    """Pipelines. Reports are cached; each request reads only new ones."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._reading = asyncio.Lock()
        self._topic_id: UUID | None = None
        self._position = 0
        self._reports: dict[str, PipelineReport] = {}

    def routes(self) -> list[Route]:
        """The routes of this resource."""
        return [
            Route("GET", "/pipelines", self.list_pipelines, "pipelines that are deployed or have ever run"),
            Route("GET", "/pipelines/{name}", self.show, "one pipeline", (404,)),
        ]

    async def list_pipelines(self, call: Call[Nothing, Paging, Nothing]) -> Page[PipelineView]:
        """GET /pipelines."""
        call.caller.check_topic(Operation.READ, PIPELINES_TOPIC)
        known = await self._known()
        part = call.query.search.lower()
        matching = [name for name in sorted(known) if part in name.lower()]
        return Page([self.view(known[name]) for name in call.query.page(matching)], len(matching))

    async def show(self, call: Call[PipelineNames, Nothing, Nothing]) -> PipelineView:
        """GET /pipelines/{name}."""
        call.caller.check_topic(Operation.READ, PIPELINES_TOPIC)
        return await self.view_of(call.names.name)

    async def view_of(self, name: str) -> PipelineView:
        """One pipeline; NotFoundError if there is none."""
        report = (await self._known()).get(name)
        if report is None:
            raise NotFoundError(f"there is no pipeline {name!r}; GET /api/v1/pipelines lists them")
        return self.view(report)

    async def _known(self) -> dict[str, PipelineReport]:
        """The last report of every pipeline; of one that is deployed and has none, what its file says."""
        declared = {
            name: PipelineReport(name=name, kind=deployment.kind, source=deployment.source, target=deployment.target)
            for name, (deployment, _) in self._context.deployments.deployed().items()
        }
        return {**declared, **await self.reports()}

    async def reports(self) -> dict[str, PipelineReport]:
        """The last report of every pipeline."""
        async with self._reading:
            await self._catch_up()
            return dict(self._reports)

    async def _catch_up(self) -> None:
        broker = self._context.broker
        try:
            topic = broker.catalog.topic(PIPELINES_TOPIC)
        except UnknownTopicError:
            self._reports.clear()
            self._topic_id = None
            return
        if topic.id != self._topic_id:
            self._topic_id, self._position, self._reports = topic.id, 0, {}
        try:
            (partition,) = await readable_partitions(self._context, topic, [0])
        except UnavailableError:
            return  # it starts, or its node does not answer: what is deployed can be listed and stopped all the same
        scan = PartitionScan(partition, max(self._position, partition.start_offset), Filter(), backwards=False)
        budget = Budget(self._context.clock)
        await scan.fill(budget)
        while scan.next_time is not None:
            record = scan.take()
            self._take((record.key or b"").decode(errors="replace"), record.value)
            await scan.fill(budget)
        self._position = scan.at

    def _take(self, name: str, value: bytes | None) -> None:
        if value is None:
            self._reports.pop(name, None)
            return
        try:
            self._reports[name] = msgspec.json.decode(value, type=PipelineReport)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self._reports[name] = PipelineReport(name=name, state="unknown", last_error="its last report cannot be read")

    def view(self, report: PipelineReport) -> PipelineView:
        """A report as it is shown."""
        is_alive = self._context.now_ms() - (report.updated_ms or 0) < ALIVE_MS
        deployed = self._context.deployments.deployed().get(report.name)
        deployment = None
        if deployed is not None:
            deployment = deployment_view(*deployed, self._messages_in(deployed[0].dead_letter_topic))
        return PipelineView(**msgspec.structs.asdict(report), is_alive=is_alive, deployment=deployment)

    def _messages_in(self, name: str | None) -> int | None:
        """How many messages a topic has; None if it does not exist."""
        try:
            topic = None if name is None else self._context.broker.catalog.topic(name)
        except UnknownTopicError:
            return None
        return None if topic is None else self._context.figures.topic(topic).messages
