"""Produce requests of the common shape: parsed and answered by a kernel, without a message or an object a field.

What a kernel does not parse, `produce` serves: transactions, and requests that are wrong or unusual. Both give the same replies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker import Operation, UnknownTopicError
from penstock.broker.quotas import PRODUCE_QUOTA
from penstock.core.errors import PenstockError
from penstock.gateway.kafka.apis.produce import NO_ACKS, add_hints, record_errors_of
from penstock.gateway.kafka.apis.transaction_codes import produce_code
from penstock.gateway.kafka.call import Caller
from penstock.gateway.kafka.leader_hints import HINTED
from penstock.gateway.kafka.security.authorization import may_topic
from penstock.kafka.protocol import ZERO_UUID, encode_response, errors, keys
from penstock.kafka.protocol.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from penstock.kernels.produce_frame import ProducedBatch, ProduceFrame

if TYPE_CHECKING:
    from penstock.gateway.kafka.connection import RequestPipeline
    from penstock.gateway.kafka.node import Node


class PlainProduce(ProduceFrame, Caller):
    """A Produce request in flight, as `Call` is for others. `RequestPipeline` fills it in, which is a call less."""

    __slots__ = ("_deadline", "began", "cost", "node", "peer")

    api_key = keys.PRODUCE
    has_files = False
    poll = None
    size = 0
    waited_s = 0.0

    node: Node
    peer: RequestPipeline
    cost: int
    began: float

    def is_allowed(self) -> bool:
        """Returns whether access rules let the client write to all topics."""
        return all(may_topic(self, Operation.WRITE, batch.topic) for batch in self.batches)

    def start(self) -> None:
        """Queues the batches, in order."""
        broker = self.node.broker
        routes = broker.routes
        intake = broker.intake
        for batch in self.batches:
            try:
                route = routes.get((batch.topic, batch.index)) or broker.route(batch.topic, batch.index)
                batch.partition = route.partition
                if route.schema_rule is None and not intake.lanes and route.is_plain(batch, intake.clock):
                    route.enqueue(batch)  # the way of most batches, and the shortest
                else:
                    batch.log_append_time_ms = intake.begin_parsed(route, batch)
            except PenstockError as error:
                batch.set_exception(error)
        if broker.quotas.limits_produce:
            self._throttle()
        self._deadline = self.began + self.timeout_ms / 1000
        self.queued()

    def settled(self) -> None:
        """The outcome of every batch is known."""
        if self.is_done:
            # It was answered when its time was up. Now its bytes are free as well.
            self.node.memory.give(self.cost)
            return
        if self.has_errors:
            self._answer_errors()
        else:
            self.answer()
        self.peer.finished(self)

    def give_up(self, now: float) -> None:
        """It takes longer than the client waits. What is queued will be stored all the same, if it can be."""
        if now < self._deadline:
            return
        self.node.memory.take(self.cost)
        for batch in self.batches:
            if not batch.is_settled:
                batch.error_code = errors.REQUEST_TIMED_OUT
        self.is_refused = True
        self._answer_errors()
        self.peer.finished(self)

    def _throttle(self) -> None:
        delay_ms = self.node.broker.quotas.draw(PRODUCE_QUOTA, self.user, self.client_id or "", self.cost)
        if delay_ms:
            self.throttle_time_ms = delay_ms
            self.peer.mute(delay_ms / 1000)

    def _answer_errors(self) -> None:
        """Answers a request of which something was refused."""
        for batch in self.batches:
            error = batch.error
            if error is not None:
                self.is_refused = True
                is_unknown_id = isinstance(error, UnknownTopicError) and isinstance(batch.topic, bytes)
                batch.error_code = errors.UNKNOWN_TOPIC_ID if is_unknown_id else produce_code(error, self.version)
                batch.error_message = str(error)
                batch.log_append_time_ms = -1
        if self.acks == NO_ACKS:
            # Closing the connection is the only way to report an error.
            self.must_close = any(batch.error_code for batch in self.batches)
            self.answer()
        elif any(record_errors_of(batch.error) or batch.error_code in HINTED for batch in self.batches):
            response = self._response()
            add_hints(self.node, response)
            buffers, size = encode_response(keys.PRODUCE, self.version, self.correlation_id, response)
            self.answer(buffers, size)
        else:
            self.answer()

    def _response(self) -> ProduceResponse:
        """The reply as a message."""
        response = ProduceResponse(throttle_time_ms=self.throttle_time_ms)
        for batch in self.batches:
            if batch.partitions:  # the first of its topic
                name, topic_id = (batch.topic, ZERO_UUID) if isinstance(batch.topic, str) else ("", batch.topic)
                response.responses.append(TopicProduceResponse(name=name, topic_id=topic_id))
            response.responses[-1].partition_responses.append(_partition_response(batch))
        return response


def _partition_response(batch: ProducedBatch) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=batch.index,
        error_code=batch.error_code,
        base_offset=-1 if batch.error_code else batch.base_offset,
        log_append_time_ms=batch.log_append_time_ms,
        log_start_offset=batch.log_start_offset,
        record_errors=record_errors_of(batch.error),
        error_message=batch.error_message,
    )
