"""A request that this node forwards to the cluster's leader, which has the groups, the transactions and the catalog.

The request is forwarded unchanged, with the user's name and the client's address, and the response is returned unchanged. So a
client can send any request to any node.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from penstock.gateway.kafka.call import Call, Peer
from penstock.gateway.kafka.cluster_view import ForwardedReply, ForwardedRequest, Forwarder, NoForwardError
from penstock.gateway.kafka.node import Node
from penstock.gateway.kafka.unanswered import unanswered
from penstock.kafka.protocol import APIS, Request, keys, private_keys
from penstock.kafka.protocol.configs import DescribeConfigsRequest
from penstock.kafka.protocol.groups import JoinGroupRequest

log = logging.getLogger(__name__)

SERVED_EVERYWHERE: Final = frozenset(
    {
        keys.PRODUCE,
        keys.FETCH,
        keys.LIST_OFFSETS,
        keys.METADATA,
        keys.API_VERSIONS,
        keys.SASL_HANDSHAKE,
        keys.SASL_AUTHENTICATE,
        keys.DELETE_RECORDS,
        keys.OFFSET_FOR_LEADER_EPOCH,
        keys.DESCRIBE_LOG_DIRS,
        keys.ALTER_REPLICA_LOG_DIRS,
        keys.DESCRIBE_CLUSTER,
        keys.DESCRIBE_PRODUCERS,
        keys.DESCRIBE_TOPIC_PARTITIONS,
        private_keys.FIND_PIECES,
    }
)
"""What a node answers for itself, whether it leads or not."""

LISTINGS: Final = frozenset({keys.LIST_GROUPS, keys.LIST_TRANSACTIONS})
"""What clients ask every node for, to put the answers together: the leading node has all of it, others have nothing."""

WAITING: Final = frozenset({keys.JOIN_GROUP, keys.SYNC_GROUP})  # they are answered when other members have come
BROKER_RESOURCE: Final = 4  # of DescribeConfigs

ANSWER_S: Final = 30.0  # beside the time that the client gives
JOIN_S: Final = 10.0  # beside what the members of the group are given
SYNC_S: Final = 300.0  # for the leader of the group to assign


def needs_leader(node: Node, request: Request) -> bool:
    """Returns whether only the leading node can answer a request."""
    if request.api_key != keys.DESCRIBE_CONFIGS:
        return request.api_key not in SERVED_EVERYWHERE
    assert isinstance(request.body, DescribeConfigsRequest)
    own = (BROKER_RESOURCE, str(node.node_id))  # each node tells of its own settings
    return any((resource.resource_type, resource.resource_name) != own for resource in request.body.resources)


class ForwardCall(Call):
    """A request that the leading node answers."""

    __slots__ = ("_forwarder", "_frame", "_reply", "_task")

    def __init__(self, request: Request, cost: int, node: Node, peer: Peer, *, forwarder: Forwarder, frame: bytes) -> None:
        super().__init__(request, cost, node, peer)
        self._forwarder = forwarder
        self._frame = frame
        self._reply = b""
        self._task: asyncio.Task[None]

    def start(self) -> None:
        if self.api_key in LISTINGS and self.node.view.controller_id >= 0:
            self.answer(APIS[self.api_key].response_class())
            return
        self._task = task = self.node.spawn(self._run())
        self.poll = self
        if self.api_key in WAITING:
            self.node.waiting.add(task)
            task.add_done_callback(self.node.waiting.discard)

    def done(self) -> bool:
        """It has nothing to answer with before the other node does."""
        return True

    def set_result(self, result: None) -> None:
        """See Poll."""

    def half_closed(self) -> None:
        """The client sends nothing more: it does not wait for other members of its group either."""
        if self.api_key in WAITING:
            self._task.cancel()

    def cancel(self) -> None:
        """The client has disconnected: the reply is not needed."""
        self._task.cancel()

    def encode(self) -> tuple[list[Any], int]:
        if self._reply:
            return [self._reply], len(self._reply)
        return super().encode()

    async def _run(self) -> None:
        wanted = ForwardedRequest(self.node.listener, self.peer.user, self.peer.host, self._frame)
        try:
            reply = await self._forwarder.forward(wanted, _timeout_s(self.request))
        except NoForwardError as error:
            log.debug("a request with api key %d version %d was not forwarded: %s", self.api_key, self.version, error)
            self._refuse(is_open=error.is_open)
        except asyncio.CancelledError:
            self._refuse(is_open=True)  # unless the client is gone, this node stops
        except Exception:
            log.exception("a request with api key %d version %d failed", self.api_key, self.version)
            self.hang_up()
        else:
            self._take(reply)

    def _take(self, reply: ForwardedReply) -> None:
        if not reply.frame:
            self.hang_up()
            return
        self._reply = reply.frame
        self.is_refused = reply.is_refused
        if reply.mute_s:
            self.peer.mute(reply.mute_s)
        self.answer(None)

    def _refuse(self, *, is_open: bool) -> None:
        self.is_refused = True
        response = unanswered(self.request, is_open=is_open)
        if response is None:
            self.hang_up()
        else:
            self.answer(response)


def _timeout_s(request: Request) -> float:
    """How long the other node has for a request."""
    body = request.body
    if isinstance(body, JoinGroupRequest):
        return max(body.rebalance_timeout_ms, body.session_timeout_ms, 0) / 1000 + JOIN_S
    if request.api_key == keys.SYNC_GROUP:
        return SYNC_S
    timeout_ms: int = getattr(body, "timeout_ms", 0)
    return max(timeout_ms, 0) / 1000 + ANSWER_S
