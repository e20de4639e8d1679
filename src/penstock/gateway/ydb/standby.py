"""What a node that does not lead answers YDB's clients: where the leader is. Their SDK asks one node for the addresses of all and
connects to these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import grpc

from penstock.gateway.grpc_server import GrpcServer, refusing
from penstock.gateway.ydb.protos import Status, discovery, operation

DISCOVERY_SERVICE: Final = "Ydb.Discovery.V1.DiscoveryService"
LOCATION: Final = "penstock"


class Endpoint(NamedTuple):
    """Where a node serves YDB's clients."""

    node_id: int
    host: str
    port: int
    has_tls: bool


def listed(endpoint: Endpoint) -> Any:
    """The result of asking for the addresses of all nodes."""
    result = discovery.ListEndpointsResult(self_location=LOCATION)
    result.endpoints.add(
        address=endpoint.host,
        port=endpoint.port,
        ssl=endpoint.has_tls,
        node_id=endpoint.node_id,
        location=LOCATION,
        service=["topic_service"],
    )
    return result


def add_standby_handlers(server: GrpcServer, leader: Callable[[], Endpoint | None], refusal: Callable[[], str]) -> None:
    """Have a server tell the address of the leader, and refuse all other calls, which clients send again. No body is
    received and no sign-in is asked for: the address is all that is told."""

    async def tell(_: Any, context: Any) -> Any:
        endpoint = leader()
        if endpoint is None:
            return await context.abort(grpc.StatusCode.UNAVAILABLE, refusal())
        answer = operation.Operation(ready=True, status=Status.SUCCESS)
        answer.result.Pack(listed(endpoint))
        return discovery.ListEndpointsResponse(operation=answer)

    serialize = discovery.ListEndpointsResponse.SerializeToString
    server.add_to_all_methods(refusing(refusal))
    server.add_registered_method_handlers(
        DISCOVERY_SERVICE, {"ListEndpoints": grpc.stream_unary_rpc_method_handler(tell, response_serializer=serialize)}
    )
