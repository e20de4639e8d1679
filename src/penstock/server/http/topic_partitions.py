"""/topics/{name}/partitions: the partitions of a topic, where they are led and kept, and how far groups are behind in each."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import msgspec

from penstock.broker import Operation, PartitionDamagedError, PartitionStatus, ResourceKind, Topic, TopicPartition
from penstock.core.errors import PenstockError
from penstock.gateway.kafka import NO_LEADER
from penstock.server.http.caller import Caller
from penstock.server.http.node_context import NodeContext
from penstock.server.http.route import Call, Nothing, Page, Paging, Resource, ResponseModel, Route
from penstock.server.http.topics import TopicNames, topic_for

State = Literal["serving", "starting", "damaged"]

GROUPS_MAX = 100  # of a topic, that are looked at for the largest lag in a partition


class PartitionView(ResponseModel, frozen=True):
    """A partition. `replicas` and `in_sync` are the nodes that Kafka clients are told; the leader comes first."""

    partition: int
    state: State
    tablet: int
    leader: Annotated[int | None, msgspec.Meta(description="the node that serves it; null while none does")]
    replicas: list[int]
    in_sync: list[int]
    start: int
    end: int
    stable: int
    bytes: int
    head_bytes: int
    body_bytes: int
    bodies: int
    leader_epoch: int
    last_append_ms: int | None
    lag: Annotated[int | None, msgspec.Meta(description="the largest of a group in it; null if none has committed an offset")]
    lag_group: str | None
    leased_from: int | None  # the first offset that a lease protects from deletion
    leased_by: str | None


class _Copies(NamedTuple):
    leader: int | None
    replicas: list[int]
    in_sync: list[int]


class _GroupLag(NamedTuple):
    messages: int
    group: str


class TopicPartitionResource(Resource):
    """The partitions of topics."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._broker = context.broker

    def routes(self) -> list[Route]:
        """The routes of this resource."""
        summary = "the partitions of a topic: offsets, sizes, the largest lag, leader and replicas"
        return [Route("GET", "/topics/{name}/partitions", self.list_partitions, summary, (404,))]

    async def list_partitions(self, call: Call[TopicNames, Paging, Nothing]) -> Page[PartitionView]:
        """GET /topics/{name}/partitions."""
        topic = topic_for(self._context, call.caller, Operation.DESCRIBE, call.names.name)
        numbers = [number for number in range(topic.partitions) if call.query.search in str(number)]
        shown = call.query.page(numbers)
        lags = self._lags(topic, shown, call.caller)
        return Page([self._partition(topic, number, lags.get(number)) for number in shown], len(numbers))

    def _lags(self, topic: Topic, numbers: list[int], caller: Caller) -> dict[int, _GroupLag]:
        """The largest lag of a group in each of these partitions, of the groups that the caller may see."""
        self._context.figures.refresh()
        readers = sorted(self._context.figures.last.readers.get(topic.id, ()))[:GROUPS_MAX]
        largest: dict[int, _GroupLag] = {}
        for group in readers:
            if not caller.may(Operation.DESCRIBE, ResourceKind.GROUP, group):
                continue
            positions = self._broker.consumers.positions(group)
            for number in numbers:
                position = positions.get(TopicPartition(topic.id, number))
                if position is not None:
                    lag = self._context.figures.lag_at(topic, number, position.offset)
                    largest[number] = max(largest.get(number, _GroupLag(-1, "")), _GroupLag(lag.messages, group))
        return largest

    def _partition(self, topic: Topic, number: int, lag: _GroupLag | None) -> PartitionView:
        queue = TopicPartition(topic.id, number)
        state: State = "serving"
        try:
            status = self._broker.status(topic, number)
        except PenstockError as error:
            status = PartitionStatus(topic.tablets[number], number, 0, 0, 0, 0, 0, 0, 0, 0, -1)
            state = "damaged" if isinstance(error, PartitionDamagedError) else "starting"
        view = _view(status, state, self._copies(topic, number, state), lag)
        lease = self._broker.leases.holder(queue)
        return view if lease is None else msgspec.structs.replace(view, leased_from=lease.positions[queue], leased_by=lease.owner)

    def _copies(self, topic: Topic, number: int, state: str) -> _Copies:
        """Where a partition is led and kept, as metadata of Kafka clients has it."""
        view, own = self._context.view, self._context.node_id
        if view is None:
            leader = None if state == "starting" else own
            return _Copies(leader, [own], [own] if leader is not None else [])
        if self._broker.tablets.hosts(topic.tablets[number]):
            leader = own
        else:
            elsewhere = view.leader_elsewhere(topic.tablets[number])
            leader = None if elsewhere is None else elsewhere.node_id
        replicas = view.replicas(topic, number, NO_LEADER if leader is None else leader)
        return _Copies(leader, replicas.nodes, replicas.in_sync)


def _view(status: PartitionStatus, state: State, copies: _Copies, lag: _GroupLag | None) -> PartitionView:
    return PartitionView(
        partition=status.number,
        state=state,
        tablet=status.tablet_id,
        **copies._asdict(),
        start=status.start_offset,
        end=status.end_offset,
        stable=status.stable_offset,
        bytes=status.size,
        head_bytes=status.head_size,
        body_bytes=status.size - status.head_size,
        bodies=status.body_count,
        leader_epoch=status.epoch,
        last_append_ms=None if status.max_timestamp < 0 else status.max_timestamp,
        lag=None if lag is None else lag.messages,
        lag_group=None if lag is None else lag.group,
        leased_from=None,
        leased_by=None,
    )
