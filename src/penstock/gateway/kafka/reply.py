"""One request under way, and the place of its reply among those of its connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from penstock.gateway.kafka.protocol import Message, Request, encode_response

if TYPE_CHECKING:
    from penstock.gateway.kafka.node import Node


class Peer(Protocol):
    """What a request knows of the connection it came by."""

    def must_hurry(self) -> bool:
        """Whether a long poll should be answered at once, with whatever there is."""
        ...

    def mute(self, delay_s: float) -> None:
        """Take no more requests for a while: the client is over its quota."""
        ...

    def finished(self, call: Call) -> None:
        """A request has its answer."""
        ...


class Call:
    """A request that was started. Whoever serves it answers once; replies leave in the order of the requests."""

    __slots__ = (
        "buffers",
        "cost",
        "deadline",
        "expire",
        "has_files",
        "must_close",
        "node",
        "peer",
        "poll",
        "request",
        "size",
        "version",
    )

    def __init__(self, request: Request, cost: int, node: Node, peer: Peer) -> None:
        self.request = request
        self.version = request.api_version
        self.node = node
        self.peer = peer
        self.cost = cost  # bytes held for it, counted against the limits until it is answered
        self.buffers: list[Any] | None = None  # the reply, once there is one
        self.size = 0
        self.has_files = False  # whether pieces of files are among the buffers
        self.must_close = False
        self.deadline = 0.0  # when `expire` is called if there is no answer yet; 0 for never
        self.expire: Callable[[], None] | None = None
        self.poll: asyncio.Future[None] | None = None  # what it waits for, if it may as well be answered at once

    @property
    def client_id(self) -> str:
        """What the client calls itself."""
        return self.request.client_id or ""

    def answer(self, response: Message) -> None:
        """Send a reply in its turn."""
        request = self.request
        self.buffers, self.size = encode_response(request.api_key, request.api_version, request.correlation_id, response)
        self.peer.finished(self)

    def answer_nothing(self) -> None:
        """The client expects no reply."""
        self.buffers = []
        self.peer.finished(self)

    def hang_up(self) -> None:
        """No reply can be given: the connection is closed once those before it have left."""
        self.must_close = True
        self.answer_nothing()
