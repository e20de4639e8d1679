"""/history: metrics over the last two days; /metrics-catalogue: a list of all metrics."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from penstock.broker import Operation
from penstock.server.http.errors import MalformedRequestError
from penstock.server.http.figures import PIPELINES_TOPIC
from penstock.server.http.node_context import NodeContext
from penstock.server.http.route import Call, Count, Nothing, Page, RequestModel, Resource, ResponseModel, Route
from penstock.server.metrics import HISTORY_METRICS, PIPELINE_METRICS, catalogue

Metric = Literal[
    "produce_bytes",
    "produce_messages",
    "fetch_bytes",
    "fetch_messages",
    "request_ms_p99",
    "fsync_ms_p99",
    "loop_lag_ms",
    "storage_used",
    "lag_messages",
    "lag_seconds",
    "pipeline_rows",
    "pipeline_lag",
    "pipeline_batch_ms",
    "pipeline_dead_letters",
]
assert set(Metric.__args__) == set(HISTORY_METRICS)  # type: ignore[attr-defined]


class HistoryQuery(RequestModel, frozen=True, kw_only=True):
    """The metric, of the node, a topic, a consumer or a pipeline; the time range, and the number of points."""

    metric: Metric
    topic: Annotated[str, msgspec.Meta(max_length=249)] = ""
    consumer: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    pipeline: Annotated[str, msgspec.Meta(max_length=500)] = ""
    from_ms: Count | None = msgspec.field(default=None, name="from")
    to_ms: Count | None = msgspec.field(default=None, name="to")
    points: Annotated[int, msgspec.Meta(ge=1, le=3000)] = 300


class HistoryView(ResponseModel, frozen=True):
    """Timestamps in milliseconds, and the values of each series; null for a gap."""

    times: list[int]
    series: dict[str, list[float | None]]


class MetricView(ResponseModel, frozen=True):
    """One metric of /metrics, or of /metrics/internal."""

    name: str
    type: str
    unit: str
    labels: list[str]
    tier: str
    doc: str


class HistoryResource(Resource):
    """Figures over time."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context

    def routes(self) -> list[Route]:
        """The routes of this resource."""
        return [
            Route("GET", "/history", self.show, "what a figure was over the last minutes, hours or two days", (422,)),
            Route("GET", "/metrics-catalogue", self.list_metrics, "every metric for Prometheus, and what it means"),
        ]

    async def show(self, call: Call[Nothing, HistoryQuery, Nothing]) -> HistoryView:
        """GET /history; needs DESCRIBE on the object."""
        query, caller = call.query, call.caller
        if query.consumer:
            caller.check_group(Operation.DESCRIBE, query.consumer)
        if query.topic:
            caller.check_topic(Operation.DESCRIBE, query.topic)
        if query.pipeline:
            caller.check_topic(Operation.READ, PIPELINES_TOPIC)
            if query.consumer or query.topic or query.metric not in PIPELINE_METRICS:
                raise MalformedRequestError(
                    f"a pipeline has a history of {', '.join(PIPELINE_METRICS)}, without consumer and topic"
                )
        if not query.consumer and not query.topic and not query.pipeline:
            caller.check_cluster(Operation.DESCRIBE)
        if query.from_ms is not None and query.to_ms is not None and query.from_ms > query.to_ms:
            raise MalformedRequestError("'from' is after 'to'; both are milliseconds since 1970")
        series: dict[str, Any] = self._context.observatory.history(
            query.metric,
            query.topic or None,
            query.consumer or query.pipeline or None,
            from_ms=query.from_ms,
            to_ms=query.to_ms,
            points=query.points,
        )
        return HistoryView(times=series["times"], series=series["series"])

    async def list_metrics(self, call: Call[Nothing, Nothing, Nothing]) -> Page[MetricView]:
        """GET /metrics-catalogue."""
        items = [msgspec.convert(metric, MetricView) for metric in catalogue()]
        return Page(items, len(items))
