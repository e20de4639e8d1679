"""InitProducerId and DescribeProducers: idempotent producers."""

from __future__ import annotations

from penstock.core.errors import PenstockError
from penstock.gateway.kafka.apis.topic_lookup import find_topic, topic_code
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.node import Node
from penstock.gateway.kafka.protocol import errors
from penstock.gateway.kafka.protocol.cluster import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from penstock.gateway.kafka.protocol.transactions import InitProducerIdRequest, InitProducerIdResponse
from penstock.queue import Partition

KAFKA_SOURCE = b"k"


async def init_producer_id(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """An id by which a producer's batches are stored once."""
    if request.transactional_id is not None:
        # Transactions are not served. Clients try again on codes that say so more plainly; on this one they give up.
        return InitProducerIdResponse(error_code=errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    try:
        producer_id, epoch = await call.node.broker.new_producer()
    except PenstockError as error:
        code = errors.COORDINATOR_NOT_AVAILABLE if error.retriable else errors.UNKNOWN_SERVER_ERROR
        return InitProducerIdResponse(error_code=code)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


async def describe_producers(call: Call, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """The producers each partition knows."""
    response = DescribeProducersResponse()
    for topic in request.topics:
        found = [_describe(call.node, topic.name, number) for number in topic.partition_indexes]
        response.topics.append(TopicResponse(name=topic.name, partitions=found))
    return response


def _describe(node: Node, name: str, number: int) -> PartitionResponse:
    try:
        partition = node.broker.partition(find_topic(node, name), number)
    except PenstockError as error:
        return PartitionResponse(partition_index=number, error_code=topic_code(error), error_message=str(error))
    return PartitionResponse(partition_index=number, active_producers=_producers(partition))


def _producers(partition: Partition) -> list[ProducerState]:
    found = []
    for source, state in partition.sources():
        if not source.startswith(KAFKA_SOURCE):
            continue
        producer_id = int.from_bytes(source[len(KAFKA_SOURCE) :], "big")
        first_offset = partition.open_transaction(producer_id)
        found.append(
            ProducerState(
                producer_id=producer_id,
                producer_epoch=state.epoch,
                last_sequence=state.max_seqno,
                coordinator_epoch=-1,
                current_txn_start_offset=-1 if first_offset is None else first_offset,
            )
        )
    return found
