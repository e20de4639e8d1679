"""Requests of Kafka clients that one node passes on to the node that leads, over the interconnect.

The leading node answers as if the client were its own: the user, the address of the client and the name of the listener come
along. All callers on the interconnect are nodes of the cluster, and are trusted. A reply that is larger than a call may bring
is kept for a moment and fetched by a second call, which says how much it takes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Final
from uuid import UUID

import msgspec

from penstock.broker import Broker, PartitionUnavailableError, TopicPartition
from penstock.broker.table_feed import FollowedTable, TablePosition
from penstock.broker.transactions import (
    ConcurrentTransactionsError,
    InvalidTransactionStateError,
    NotInTransactionError,
    Producer,
    ProducerFencedError,
    UnknownProducerError,
)
from penstock.core.errors import PenstockError, UnavailableError
from penstock.gateway.kafka import (
    Admitted,
    ForwardedReply,
    ForwardedRequest,
    KafkaGateway,
    NoForwardError,
    TransactionalWrite,
)
from penstock.interconnect import CallStatus, Handler, Interconnect, Link, Parts, Reply, ServedCall

log = logging.getLogger(__name__)

FORWARD_DESTINATION: Final = 2
REPLY_BYTES: Final = 100 << 10  # larger replies are kept; a call brings 128 KiB unless it says otherwise
KEPT_BYTES_MAX: Final = 64 << 20
KEPT_S: Final = 10.0
LEADER_WAIT_S: Final = 1.0  # for a node to lead, or to be reached
LOOK_S: Final = 0.05
ADMIT_S: Final = 10.0
FETCH_S: Final = 10.0
APPLY_S: Final = 2.0  # for a change to arrive at this node; it usually comes with the reply


class ForwardMethod(IntEnum):
    """Calls to the node that leads."""

    FORWARD = 1
    TAKE_REPLY = 2
    ADMIT = 3


class NotLeadingError(UnavailableError):
    """This node does not lead; nothing was done."""

    code = "not_leading"


class _KeptReply(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A reply that waits to be fetched."""

    number: int
    size: int
    position: TablePosition | None = None


class _WholeReply(msgspec.Struct, frozen=True, array_like=True, tag=True):
    reply: ForwardedReply
    position: TablePosition | None = None  # of the tables after a change of them


class Admission(msgspec.Struct, frozen=True, array_like=True):
    """A write that is to be part of a transaction."""

    transactional_id: str | None
    producer_id: int
    producer_epoch: int
    topic_id: bytes
    partition: int
    adds: bool


_encode = msgspec.msgpack.Encoder().encode
_decode_request = msgspec.msgpack.Decoder(ForwardedRequest).decode
_decode_admission = msgspec.msgpack.Decoder(Admission).decode
_decode_kept = msgspec.msgpack.Decoder(_KeptReply).decode
_decode_reply = msgspec.msgpack.Decoder(ForwardedReply).decode
_decode_answer = msgspec.msgpack.Decoder(_WholeReply | _KeptReply).decode

# What a producer is told of its transaction.
_TOLD: Final[dict[str, type[PenstockError]]] = {
    kind.code: kind
    for kind in (
        ConcurrentTransactionsError,
        InvalidTransactionStateError,
        NotInTransactionError,
        ProducerFencedError,
        UnknownProducerError,
    )
}


class ForwardService:
    """Answers the requests that other nodes forward, while this node leads."""

    def __init__(self, interconnect: Interconnect) -> None:
        self._broker: Broker | None = None
        self._gateways: Mapping[str, KafkaGateway] = {}
        self._position: Callable[[], TablePosition] = TablePosition
        self._kept: dict[int, bytes] = {}
        self._last_kept = 0
        handlers: dict[int, Handler] = {
            ForwardMethod.FORWARD: self._forward,
            ForwardMethod.TAKE_REPLY: self._take_reply,
            ForwardMethod.ADMIT: self._admit,
        }
        # What a client has begun is completed though it has gone, as it is for clients of this node.
        interconnect.service.register(FORWARD_DESTINATION, handlers, cancels=False)

    def lead(self, broker: Broker, gateways: Mapping[str, KafkaGateway], position: Callable[[], TablePosition]) -> None:
        """Answer from now on, with the listeners of this node by name. `position` tells how far the tables of the broker are."""
        self._broker, self._gateways, self._position = broker, gateways, position

    def stop_leading(self) -> None:
        """Refuse what comes from now on."""
        self._broker, self._gateways = None, {}

    @property
    def leads(self) -> bool:
        """Whether this node answers."""
        return self._broker is not None

    async def answer(self, request: ForwardedRequest) -> ForwardedReply:
        """Answer a request. NotLeadingError if this node does not lead."""
        gateway = self._gateways.get(request.listener)
        if self._broker is None:
            raise NotLeadingError("this node does not lead")
        if gateway is None:
            raise NotLeadingError(f"the leading node has no listener {request.listener!r}; give all nodes the same listeners")
        return await gateway.serve_forwarded(request)

    async def _forward(self, served: ServedCall) -> Parts:
        assert served.body is not None
        reply = await self.answer(_decode_request(served.body))
        position = self._position() if reply.is_change else None
        if len(reply.frame) <= REPLY_BYTES:
            return (_encode(_WholeReply(reply, position)),)
        return (_encode(self._keep(reply, position)),)

    def _keep(self, reply: ForwardedReply, position: TablePosition | None) -> _KeptReply:
        kept = _encode(reply)
        while self._kept and sum(map(len, self._kept.values())) + len(kept) > KEPT_BYTES_MAX:
            self._kept.pop(next(iter(self._kept)))  # its client is told to try again
        self._last_kept += 1
        number = self._last_kept
        self._kept[number] = kept
        asyncio.get_running_loop().call_later(KEPT_S, self._kept.pop, number, None)
        return _KeptReply(number, len(kept), position)

    def _take_reply(self, served: ServedCall) -> Parts:
        assert served.body is not None
        kept = self._kept.pop(_decode_kept(served.body).number, None)
        if kept is None:
            raise UnavailableError("the reply is not kept any more")
        return (kept,)

    async def _admit(self, served: ServedCall) -> Parts:
        assert served.body is not None
        await self.admit(_decode_admission(served.body))
        return ()

    async def admit(self, wanted: Admission) -> None:
        """Have a write be part of a transaction. Raises why it cannot be, NotLeadingError if this node does not lead."""
        if self._broker is None:
            raise NotLeadingError("this node does not lead")
        producer = Producer(wanted.producer_id, wanted.producer_epoch)
        queue = TopicPartition(UUID(bytes=wanted.topic_id), wanted.partition)
        await self._broker.transactions.admit(wanted.transactional_id, producer, queue, adds=wanted.adds)


class LeaderForwarder:
    """Forwards requests to the current leader. `leader` returns its id, `link_to` a link to a node. `table` is the local copy
    of the leader's tables on a follower, so that a client sees its own changes on this node. What waits for a leader when this
    node begins to lead is answered by `own`."""

    def __init__(
        self, node_id: int, leader: Callable[[], int | None], link_to: Callable[[int], Link], own: ForwardService
    ) -> None:
        self._node_id = node_id
        self._leader = leader
        self._link_to = link_to
        self._own = own
        self.table: FollowedTable | None = None
        self._admissions: dict[tuple[TopicPartition, Producer], list[Admitted]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def forward(self, request: ForwardedRequest, timeout_s: float) -> ForwardedReply:
        """See Forwarder."""
        asked = await self._ask(ForwardMethod.FORWARD, _encode(request), timeout_s)
        if asked is None:
            try:
                return await self._own.answer(request)
            except NotLeadingError as error:
                raise NoForwardError(str(error), is_open=False) from error
        reply, link = asked
        if reply.status is CallStatus.TOO_LARGE:
            log.warning("a request of %d bytes is too large to be forwarded: %s", len(request.frame), reply.reason)
            return ForwardedReply(b"")
        if reply.status is not CallStatus.OK:
            raise NoForwardError(f"the leading node did not answer: {reply.reason}", is_open=True)
        answer = _decode_answer(reply.body)
        if answer.position is not None and self.table is not None and not await self.table.applied(answer.position, APPLY_S):
            log.warning("a change that the leading node has made is not in effect here after %g s", APPLY_S)
        if isinstance(answer, _WholeReply):
            return answer.reply
        fetched = await link.call(
            ForwardMethod.TAKE_REPLY, FORWARD_DESTINATION, (_encode(answer),), timeout_s=FETCH_S, reply_bytes=answer.size
        )
        if fetched.status is not CallStatus.OK:
            raise NoForwardError(f"a reply of {answer.size} bytes did not come: {fetched.reason}", is_open=True)
        return _decode_reply(fetched.body)

    def admit(self, write: TransactionalWrite, then: Admitted) -> None:
        """See Forwarder."""
        place = (write.queue, write.producer)
        waiting = self._admissions.get(place)
        if waiting is not None:
            waiting.append(then)
        elif write.is_open:
            then(None)
        else:
            self._admissions[place] = [then]
            task = asyncio.create_task(self._ask_admission(write), name="transaction-admission")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _ask_admission(self, write: TransactionalWrite) -> None:
        producer, queue = write.producer, write.queue
        wanted = Admission(write.transactional_id, producer.id, producer.epoch, queue.topic_id.bytes, queue.partition, write.adds)
        trouble: PenstockError | None = None
        try:
            asked = await self._ask(ForwardMethod.ADMIT, _encode(wanted), ADMIT_S)
            if asked is None:
                await self._own.admit(wanted)
            elif (reply := asked[0]).status is not CallStatus.OK:
                # Nothing was written: the producer looks for the leader of the partition, and sends the batch again.
                trouble = _TOLD.get(reply.code, PartitionUnavailableError)(reply.reason)
        except PenstockError as error:
            trouble = error if type(error) in _TOLD.values() else PartitionUnavailableError(str(error))
        finally:
            for then in self._admissions.pop((queue, producer)):
                then(trouble)

    async def _ask(self, method: ForwardMethod, body: bytes, timeout_s: float) -> tuple[Reply, Link] | None:
        """Calls the node that leads, and waits a moment for one. Returns None if this node leads by now. NoForwardError if none
        does."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + min(timeout_s, LEADER_WAIT_S)
        while True:
            if self._own.leads:
                return None
            leader = self._leader()
            reason = "no node leads now"
            if leader is not None and leader != self._node_id:
                link = self._link_to(leader)
                reply = await link.call(method, FORWARD_DESTINATION, (body,), timeout_s=timeout_s)
                is_refused = reply.status in _REFUSED or reply.code == NotLeadingError.code
                if not is_refused:
                    return reply, link
                reason = reply.reason
            if clock() >= deadline:
                raise NoForwardError(reason, is_open=False)
            await asyncio.sleep(LOOK_S)


_REFUSED: Final = frozenset({CallStatus.UNREACHABLE, CallStatus.OVERLOADED, CallStatus.UNKNOWN_DESTINATION})
