"""One request under way, and the place of its reply among those of its connection."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

from penstock.kafka.protocol import Message, Request, encode_response

if TYPE_CHECKING:
    from penstock.broker import Operation, ResourceKind
    from penstock.core.probe import Span
    from penstock.gateway.kafka.node import Node
    from penstock.gateway.kafka.security.sasl import SaslExchange


class Peer(Protocol):
    """What a request knows of the connection it came by."""

    active_at: float
    user: str  # who the client is, ANONYMOUS unless it had to say so
    host: str  # the address it comes from
    takes_files: bool  # whether pieces of files can be sent as they are
    sasl: SaslExchange | None  # how it says who it is, as long as it has not

    def must_hurry(self) -> bool:
        """Whether a long poll should be answered at once, with whatever there is."""
        ...

    def mute(self, delay_s: float) -> None:
        """Take no more requests for a while: the client is over its quota."""
        ...

    def finished(self, call: Call) -> None:
        """A request has its answer."""
        ...

    def authenticated(self, user: str) -> None:
        """The client has proven who it is."""
        ...

    def finish(self, reason: str) -> None:
        """Take no more requests, answer those under way, then close."""
        ...


class Call(ABC):
    """A request that was started. Whoever serves it answers once; replies leave in the order of the requests."""

    __slots__ = (
        "began",
        "cost",
        "has_files",
        "is_done",
        "is_refused",
        "must_close",
        "node",
        "peer",
        "poll",
        "request",
        "response",
        "size",
        "span",
        "version",
        "waited_s",
    )

    def __init__(self, request: Request, cost: int, node: Node, peer: Peer) -> None:
        self.request = request
        self.version = request.api_version
        self.node = node
        self.peer = peer
        self.cost = cost  # bytes held for the request, counted until it is answered
        self.size = 0  # bytes held for the answer, counted until it is sent
        self.is_done = False
        self.response: Message | None = None
        self.has_files = False  # whether pieces of files are in the answer
        self.must_close = False
        self.is_refused = False  # whether the answer has an error in it
        self.began = peer.active_at
        self.waited_s = 0.0  # for messages that were not there yet
        self.span: Span | None = None
        self.poll: asyncio.Future[None] | None = None  # what it waits for, if it may as well be answered at once

    @property
    def client_id(self) -> str:
        """What the client calls itself."""
        return self.request.client_id or ""

    @property
    def user(self) -> str:
        """Who the client is."""
        return self.peer.user

    @property
    def principal(self) -> str:
        """Who the client is, as access rules name it."""
        return f"User:{self.peer.user}"

    def may(self, operation: Operation, kind: ResourceKind, name: str) -> bool:
        """Whether the client may do something; without security, everyone may do everything."""
        access = self.node.access
        return access is None or access.allows(self.principal, self.peer.host, operation, kind, name)

    @abstractmethod
    def start(self) -> None:
        """Begin to serve it."""

    def give_up(self, now: float) -> None:  # noqa: B027 - most calls have no time of their own
        """Called now and then while it has no answer: answer if its time is up."""

    def answer(self, response: Message | None) -> None:
        """Send a reply in its turn; None if the client expects none."""
        self.response = response
        self.is_done = True
        self.peer.finished(self)

    def hang_up(self) -> None:
        """No reply can be given: the connection is closed once those before it have left."""
        self.must_close = True
        self.answer(None)

    def encode(self) -> tuple[list[Any], int]:
        """The reply as buffers, and its bytes in all."""
        if self.response is None:
            return [], 0
        request = self.request
        return encode_response(request.api_key, self.version, request.correlation_id, self.response)
