"""POST /topics/{name}/messages: produces one message."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import Any, Literal

import msgspec

from penstock.broker import Operation, PartitionElsewhereError, Produced, Topic, check_not_internal
from penstock.core.key_hash import partition_of_key
from penstock.core.record_format import framed, packed_record
from penstock.server.http.errors import MalformedRequestError
from penstock.server.http.messages import PartitionNumber
from penstock.server.http.node_context import NodeContext
from penstock.server.http.route import Call, Nothing, RequestModel, Resource, ResponseModel, Route
from penstock.server.http.throttle import throttle_writer
from penstock.server.http.topics import TopicNames, topic_for


class NewMessage(RequestModel, frozen=True, kw_only=True):
    """A message to produce. Key and value are text, null, or any JSON value, which is stored as JSON."""

    value: Any
    key: Any = None
    partition: PartitionNumber | None = None
    headers: dict[str, str | None] = msgspec.field(default_factory=dict)
    encoding: Literal["text", "base64"] = "text"  # of key and value, if they are strings


class ProduceResult(ResponseModel, frozen=True):
    """Partition and offset of the message, which is durable."""

    partition: int
    offset: int
    timestamp: int


class ProduceResource(Resource):
    """Produces single messages."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._turn = 0

    def routes(self) -> list[Route]:
        """The routes of this resource."""
        summary = "write one message; without a partition, its key decides as with Kafka's producers"
        return [Route("POST", "/topics/{name}/messages", self.write, summary, (404, 422))]

    async def write(self, call: Call[TopicNames, Nothing, NewMessage]) -> ProduceResult:
        """POST /topics/{name}/messages."""
        broker, message = self._context.broker, call.body
        topic = topic_for(self._context, call.caller, Operation.WRITE, call.names.name)
        key, value = _octets(message.key, "key", message.encoding), _octets(message.value, "value", message.encoding)
        headers = [(name.encode(), None if text is None else text.encode()) for name, text in message.headers.items()]
        now_ms = self._context.now_ms()
        batch = framed(packed_record(0, value, key=key, headers=headers), 1, (now_ms, now_ms))
        number = self._partition(topic, key) if message.partition is None else message.partition
        check_not_internal(topic.name)
        stored = await self._produce(topic, number, batch)
        await throttle_writer(broker, call.caller, len(batch))
        stamp = now_ms if stored.append_time_ms < 0 else stored.append_time_ms
        return ProduceResult(partition=number, offset=stored.base_offset, timestamp=stamp)

    async def _produce(self, topic: Topic, number: int, batch: bytes) -> Produced:
        """Store a batch, on whichever node its partition is."""
        try:
            return await self._context.broker.produce(topic, number, batch)
        except PartitionElsewhereError as error:
            if self._context.cluster is None or error.node_id is None:
                raise
            return await self._context.cluster.partitions.write(error.node_id, topic, number, batch)

    def _partition(self, topic: Topic, key: bytes | None) -> int:
        if key is not None:
            return partition_of_key(key, topic.partitions)
        self._turn += 1
        return self._turn % topic.partitions


def _octets(given: Any, what: str, encoding: str) -> bytes | None:
    if given is None:
        return None
    if not isinstance(given, str):
        return msgspec.json.encode(given)
    if encoding == "text":
        return given.encode()
    try:
        return b64decode(given, validate=True)
    except (binascii.Error, ValueError) as error:
        raise MalformedRequestError(f"the {what} is not base64, as 'encoding' says: {error}") from error
