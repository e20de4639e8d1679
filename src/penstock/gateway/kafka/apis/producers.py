"""InitProducerId and DescribeProducers: idempotent and transactional producers."""

from __future__ import annotations

from penstock.blob import FilePiece
from penstock.broker.transactions import Producer
from penstock.core.errors import PenstockError
from penstock.core.record_format import BatchHeader, header_at
from penstock.gateway.kafka.apis.topic_lookup import find_topic, topic_code
from penstock.gateway.kafka.apis.transaction_codes import coordinator_code
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.node import Node
from penstock.kafka.protocol import errors
from penstock.kafka.protocol.cluster import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from penstock.kafka.protocol.transactions import InitProducerIdRequest, InitProducerIdResponse
from penstock.queue import Partition, coordinator_epoch_of, split_batches

KAFKA_SOURCE = b"k"
FENCED_FROM = 4
MARKER_WITHIN_BYTES = 256 << 10  # after the last data of a producer, its marker is looked for so far


async def init_producer_id(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """An id by which a producer's batches are stored once."""
    if request.transactional_id is not None:
        return await _init_transactional(call, request, request.transactional_id)
    try:
        producer_id, epoch = await call.node.coordinator.new_producer()
    except PenstockError as error:
        code = errors.COORDINATOR_NOT_AVAILABLE if error.retriable else errors.UNKNOWN_SERVER_ERROR
        return InitProducerIdResponse(error_code=code)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


async def _init_transactional(call: Call, request: InitProducerIdRequest, transactional_id: str) -> InitProducerIdResponse:
    """The next epoch of a transactional id: all producers that had it before are fenced."""
    has_expected = request.producer_id >= 0 and request.producer_epoch >= 0
    if not has_expected and (request.producer_id >= 0 or request.producer_epoch >= 0):
        return InitProducerIdResponse(error_code=errors.INVALID_REQUEST)
    expected = Producer(request.producer_id, request.producer_epoch) if has_expected else None
    try:
        owner = await call.node.coordinator.transactions.initialise(transactional_id, request.transaction_timeout_ms, expected)
    except PenstockError as error:
        return InitProducerIdResponse(error_code=coordinator_code(error, tells_fenced=call.version >= FENCED_FROM))
    return InitProducerIdResponse(producer_id=owner.id, producer_epoch=owner.epoch)


async def describe_producers(call: Call, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """The producers each partition knows."""
    response = DescribeProducersResponse()
    for topic in request.topics:
        results = [await _describe(call.node, topic.name, number) for number in topic.partition_indexes]
        response.topics.append(TopicResponse(name=topic.name, partitions=results))
    return response


async def _describe(node: Node, name: str, number: int) -> PartitionResponse:
    try:
        topic = find_topic(node, name)
        producers = await _producers(node.broker.partition(topic, number))
    except PenstockError as error:
        return PartitionResponse(partition_index=number, error_code=topic_code(error), error_message=str(error))
    return PartitionResponse(partition_index=number, active_producers=producers)


async def _producers(partition: Partition) -> list[ProducerState]:
    producers = []
    for source, state in list(partition.sources()):
        if not source.startswith(KAFKA_SOURCE):
            continue
        producer_id = int.from_bytes(source[len(KAFKA_SOURCE) :], "big")
        first_offset = partition.open_transaction(producer_id)
        last = await _batch_at(partition, state.last_offset)
        ended_by = partition.ends.decided_by(producer_id)
        if ended_by is None and first_offset is None and last is not None and last.is_transactional:
            ended_by = await _marked_by(partition, state.last_offset, producer_id)
        producers.append(
            ProducerState(
                producer_id=producer_id,
                producer_epoch=state.epoch,
                last_sequence=state.last_sequence,
                last_timestamp=-1 if last is None else last.max_ms,
                coordinator_epoch=-1 if ended_by is None else ended_by,
                current_txn_start_offset=-1 if first_offset is None else first_offset,
            )
        )
    return producers


async def _batch_at(partition: Partition, offset: int) -> BatchHeader | None:
    """The header of the batch with this offset; None if it is there no more."""
    if not partition.start_offset <= offset < partition.end_offset:
        return None
    batches = (await partition.read(offset, 1)).batches
    if not batches or isinstance(batches[0], FilePiece):
        return None
    header = header_at(batches[0])
    return header if header.base_offset <= offset else None


async def _marked_by(partition: Partition, offset: int, producer_id: int) -> int | None:
    """The coordinator epoch in the first marker of a producer from an offset on; None if there is none near it."""
    for buffer in (await partition.read(offset, MARKER_WITHIN_BYTES)).batches:
        assert not isinstance(buffer, FilePiece), "nothing is asked for as a file"
        for batch in split_batches(buffer):
            header = header_at(batch)
            if header.is_control and header.producer_id == producer_id:
                return coordinator_epoch_of(batch)
    return None
