"""A request of a client of another node, answered here as if the client were connected to this one."""

from __future__ import annotations

import logging
from typing import Final

from penstock.blob import UnconfirmedError
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.cluster_view import ForwardedReply, ForwardedRequest
from penstock.gateway.kafka.dispatch import CALLS, respond
from penstock.gateway.kafka.forward_call import SERVED_EVERYWHERE
from penstock.gateway.kafka.node import Node
from penstock.gateway.kafka.probe import AnyCall, has_error
from penstock.kafka.protocol import ProtocolError, decode_request, encode_response, keys

log = logging.getLogger(__name__)

NOT_FORWARDED: Final = SERVED_EVERYWHERE - {keys.METADATA}
CHANGES: Final = frozenset(
    {
        keys.METADATA,  # it may create topics
        keys.CREATE_TOPICS,
        keys.DELETE_TOPICS,
        keys.CREATE_PARTITIONS,
        keys.ALTER_CONFIGS,
        keys.INCREMENTAL_ALTER_CONFIGS,
        keys.CREATE_ACLS,
        keys.DELETE_ACLS,
        keys.ALTER_CLIENT_QUOTAS,
        keys.ALTER_USER_SCRAM_CREDENTIALS,
    }
)
"""Requests that change what every node follows."""


class _Peer:
    """The client, at its own node."""

    def __init__(self, request: ForwardedRequest, now: float) -> None:
        self.user = request.user
        self.host = request.host
        self.active_at = now
        self.mute_s = 0.0

    def mute(self, delay_s: float) -> None:
        """The node of the client is told with the reply."""
        self.mute_s = max(self.mute_s, delay_s)

    def finished(self, call: AnyCall) -> None:
        """The reply is the result of a function here."""


class _ForwardedCall(Call):
    """The request here: `serve_forwarded` answers it."""

    __slots__ = ()

    def start(self) -> None:
        raise NotImplementedError


async def serve_forwarded(node: Node, forwarded: ForwardedRequest) -> ForwardedReply:
    """Answers a request by the rules for its own client. ProtocolError if it is none that is forwarded."""
    request = decode_request(forwarded.frame)
    if request.api_key not in CALLS or request.api_key in NOT_FORWARDED:
        raise ProtocolError(f"requests with api key {request.api_key} are not forwarded")
    peer = _Peer(forwarded, node.clock.monotonic())
    try:
        response = await respond(_ForwardedCall(request, len(forwarded.frame), node, peer))
    except UnconfirmedError as error:
        log.warning("a forwarded request with api key %d is not answered: %s", request.api_key, error)
        return ForwardedReply(b"")
    except Exception:
        log.exception("a forwarded request with api key %d version %d failed", request.api_key, request.api_version)
        return ForwardedReply(b"")
    buffers, _ = encode_response(request.api_key, request.api_version, request.correlation_id, response)
    return ForwardedReply(b"".join(buffers), has_error(response), peer.mute_s, request.api_key in CHANGES)
