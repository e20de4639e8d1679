"""/overview: how the node is, at a glance, and what someone should look at."""

from __future__ import annotations

from typing import Final, Literal

from penstock.blob import group_state
from penstock.broker import CLUSTER_NAME, INTERNAL_TOPICS, Operation, ResourceKind, UnknownTopicError
from penstock.server.http.caller import Caller
from penstock.server.http.consumer_directory import STREAM_PREFIX, ConsumerDirectory, Known
from penstock.server.http.figures import Snapshot
from penstock.server.http.route import Call, Nothing, Resource, Route, Shown
from penstock.server.http.served import Served
from penstock.server.http.storage import Space, group_space
from penstock.server.http.topics import visible_topics

ALERTS_MAX: Final = 100
SHARE_WARNING, SHARE_CRITICAL = 0.8, 0.95  # of the time or room that messages are kept
FREE_WARNING, FREE_CRITICAL = 0.10, 0.03  # of the room on disks


class FlowShown(Shown, frozen=True):
    """What comes or goes each second."""

    messages_per_s: float
    bytes_per_s: float


class SpaceShown(Shown, frozen=True):
    """What the data takes on all disks, and the room on their file systems."""

    used: int
    free: int
    total: int


class LagShown(Shown, frozen=True):
    """The consumer that is furthest behind, and in which topic."""

    consumer: str
    topic: str
    messages: int


class Alert(Shown, frozen=True):
    """What someone should look at; `link` is the page of the console where."""

    level: Literal["warning", "critical"]
    code: str
    message: str
    what_to_do: str
    link: str


class Overview(Shown, frozen=True):
    """The node at a glance. Storage is null for who may not describe the cluster."""

    produce: FlowShown
    fetch: FlowShown
    storage: SpaceShown | None
    topics: int
    partitions: int
    consumers: int
    lag_max: LagShown | None
    alerts: list[Alert]


class OverviewResource(Resource):
    """The overview."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._directory = ConsumerDirectory(served)

    def routes(self) -> list[Route]:
        """What is answered."""
        return [Route("GET", "/overview", self.show, "rates, storage, the largest lag and alerts")]

    async def show(self, call: Call[Nothing, Nothing, Nothing]) -> Overview:
        """GET /overview: of what the caller may know."""
        served, caller = self._served, call.caller
        snapshot = await served.figures.snapshot()
        topics = [topic for topic in visible_topics(served, caller) if topic.name not in INTERNAL_TOPICS]
        consumers = [one for one in (await self._directory.all(snapshot)).values() if _may_describe(caller, one)]
        may_cluster = caller.may(Operation.DESCRIBE, ResourceKind.CLUSTER, CLUSTER_NAME)
        alerts = self._lag_alerts(consumers, snapshot)
        space = None
        if may_cluster:
            space = await self._space()
            alerts += [*self._broker_alerts(), *await self._storage_alerts(space), *self._queue_alerts()]
        alerts.sort(key=lambda alert: alert.level)
        return Overview(
            produce=FlowShown(messages_per_s=snapshot.rate.messages_in, bytes_per_s=snapshot.rate.bytes_in),
            fetch=FlowShown(messages_per_s=snapshot.rate.messages_out, bytes_per_s=snapshot.rate.bytes_out),
            storage=None if space is None else SpaceShown(**space._asdict()),
            topics=len(topics),
            partitions=sum(topic.partitions for topic in topics),
            consumers=len(consumers),
            lag_max=_largest_lag(consumers, snapshot),
            alerts=alerts[:ALERTS_MAX],
        )

    async def _space(self) -> Space:
        spaces = [
            await group_space(config, await self._served.storage.life(config.id)) for config in self._served.storage.groups()
        ]
        return Space(*(sum(column) for column in zip(*spaces, strict=True)))

    def _broker_alerts(self) -> list[Alert]:
        trouble = self._served.broker.reading().trouble()
        if trouble is None:
            return []
        what = "look at the storage page and at the log of the node; it tries again by itself"
        return [Alert(level="critical", code="BROKER_NOT_SERVING", message=trouble, what_to_do=what, link="/storage")]

    async def _storage_alerts(self, space: Space) -> list[Alert]:
        found: list[Alert] = []
        for config in self._served.storage.groups():
            state = group_state(await self._served.storage.life(config.id))
            if state != "healthy":
                found.append(_group_alert(f"{config.id:08x}", state))
        free = space.free / space.total if space.total else 1.0
        if free < FREE_WARNING:
            found.append(
                Alert(
                    level="critical" if free < FREE_CRITICAL else "warning",
                    code="DISK_SPACE_LOW",
                    message=f"{free:.0%} of the room on the disks is left: {space.free:,} bytes",
                    what_to_do="keep messages for less long (retention.ms, retention.bytes), delete topics, or add room",
                    link="/storage",
                )
            )
        return found

    def _queue_alerts(self) -> list[Alert]:
        found: list[Alert] = []
        for topic_id, alerts in self._served.broker.queue_agent.alerts().items():
            try:
                name = self._served.broker.catalog.topic_by_id(topic_id).name
            except UnknownTopicError:
                continue
            for text in alerts.values():
                message = f"queue {name}: {text}"
                what = "register a vital consumer, mend the one in error, or turn automatic trimming off"
                found.append(Alert(level="warning", code="QUEUE_TRIM", message=message, what_to_do=what, link=f"/queues/{name}"))
        return found

    def _lag_alerts(self, consumers: list[Known], snapshot: Snapshot) -> list[Alert]:
        """Messages that are about to be deleted before a consumer has read them."""
        found: list[Alert] = []
        for one in consumers:
            figures = snapshot.consumers.get(one.key) if one.kind != "stream" else None
            share = None if figures is None else figures.lag.retention_share
            if figures is None or share is None or share < SHARE_WARNING or not figures.lag.messages:
                continue
            found.append(
                Alert(
                    level="critical" if share >= SHARE_CRITICAL else "warning",
                    code="CONSUMER_LOSES_MESSAGES",
                    message=f"consumer {one.name} is {figures.lag.messages:,} messages behind, and the first of them has used up "
                    f"{share:.0%} of its retention (mostly in {figures.worst_topic})",
                    what_to_do="speed the consumer up, start more of its members, raise the retention, or delete it if unused",
                    link=f"/consumers/{one.name}",
                )
            )
        return found


def _largest_lag(consumers: list[Known], snapshot: Snapshot) -> LagShown | None:
    worst: LagShown | None = None
    for one in consumers:
        figures = snapshot.consumers.get(one.key) if one.kind != "stream" else None
        if figures is not None and figures.worst_messages > (0 if worst is None else worst.messages):
            worst = LagShown(consumer=one.name, topic=figures.worst_topic, messages=figures.worst_messages)
    return worst


def _group_alert(name: str, state: str) -> Alert:
    texts = {
        "degraded": ("warning", "some of its disks are out or being refilled", "put the disk back, or an empty one in its place"),
        "read-only": ("critical", "too many of its disks are full to write", "free room: shorten retention or delete topics"),
        "lost": ("critical", "too few of its disks are there to answer", "bring disks back; nothing is written until then"),
    }
    level, message, what = texts[state]
    return Alert(
        level="critical" if level == "critical" else "warning",
        code=f"STORAGE_{state.upper().replace('-', '_')}",
        message=f"storage group {name} is {state}: {message}",
        what_to_do=what,
        link="/storage",
    )


def _may_describe(caller: Caller, consumer: Known) -> bool:
    return caller.may(Operation.DESCRIBE, ResourceKind.GROUP, consumer.resource.removeprefix(STREAM_PREFIX))
