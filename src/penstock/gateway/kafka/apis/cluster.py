"""FindCoordinator and DescribeCluster. The cluster's leader coordinates all groups and transactions."""

from __future__ import annotations

import logging

from penstock.broker import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from penstock.core.errors import PenstockError
from penstock.gateway.kafka.apis.authorized import ALL_CLUSTER_OPERATIONS
from penstock.gateway.kafka.call import Call
from penstock.kafka.protocol import errors
from penstock.kafka.protocol.cluster import (
    Coordinator,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

log = logging.getLogger(__name__)

GROUP, TRANSACTION = 0, 1
INTERNAL_TOPICS = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTIONS_TOPIC}
MANY_KEYS_FROM = 4
BROKERS, CONTROLLERS = 1, 2


async def find_coordinator(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Which broker looks after a group or a transactional id."""
    await _show_internal_topic(call, request.key_type)
    if call.version >= MANY_KEYS_FROM:
        coordinators = [_coordinator(call, key, request.key_type) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=coordinators)
    coordinator = _coordinator(call, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=coordinator.error_code,
        error_message=coordinator.error_message,
        node_id=coordinator.node_id,
        host=coordinator.host,
        port=coordinator.port,
    )


async def describe_cluster(call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """The brokers of the cluster."""
    node = call.node
    if request.endpoint_type != BROKERS:
        is_known = request.endpoint_type == CONTROLLERS
        return DescribeClusterResponse(
            error_code=errors.MISMATCHED_ENDPOINT_TYPE if is_known else errors.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="this is an endpoint for brokers; there are no others",
            endpoint_type=BROKERS,
        )
    response = DescribeClusterResponse(
        cluster_id=node.cluster_id,
        controller_id=node.view.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack or None)
            for broker in node.brokers()
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ALL_CLUSTER_OPERATIONS
    return response


async def _show_internal_topic(call: Call, key_type: int) -> None:
    """Who asks for a coordinator may go on to look for its topic."""
    name = INTERNAL_TOPICS.get(key_type)
    if name is not None:
        try:
            await call.node.coordinator.internal_topic(name)
        except PenstockError as error:
            log.warning("topic %r cannot be created now: %s", name, error)


def _coordinator(call: Call, key: str, key_type: int) -> Coordinator:
    node = call.node
    if key_type not in (GROUP, TRANSACTION):
        message = f"there are no coordinators of type {key_type}"
        return Coordinator(key=key, node_id=-1, port=-1, error_code=errors.INVALID_REQUEST, error_message=message)
    return Coordinator(key=key, node_id=node.node_id, host=node.host, port=node.port, error_message=None)
