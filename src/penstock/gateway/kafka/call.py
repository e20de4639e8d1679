"""One request in flight, and the place of its response among those of its connection."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

from penstock.kafka.protocol import Message, Request, encode_response

if TYPE_CHECKING:
    from penstock.broker import Operation, ResourceKind
    from penstock.core.probe import Span
    from penstock.gateway.kafka.node import Node
    from penstock.gateway.kafka.probe import AnyCall


class Peer(Protocol):
    """The client of a request: one that is connected here, or to a node that has forwarded the request."""

    user: str
    host: str
    active_at: float

    def mute(self, delay_s: float) -> None:
        """Starts no more requests of the client for a while."""
        ...

    def finished(self, call: AnyCall) -> None:
        """A request has its response."""
        ...


class Poll(Protocol):
    """A wait of a request: for records to arrive, or for another node."""

    def done(self) -> bool:
        """Whether it needs no reminder that others wait behind it."""
        ...

    def set_result(self, result: None, /) -> None:
        """Answer with what there is."""
        ...

    def cancel(self) -> object:
        """The client is gone."""
        ...


class Caller:
    """Who sends a request, and what it may do."""

    __slots__ = ()

    node: Node
    peer: Peer

    @property
    def user(self) -> str:
        """The authenticated user."""
        return self.peer.user

    @property
    def principal(self) -> str:
        """The user as access rules name it."""
        return f"User:{self.peer.user}"

    def may(self, operation: Operation, kind: ResourceKind, name: str) -> bool:
        """Returns whether access rules allow the client an operation; always true without security."""
        access = self.node.access
        return access is None or access.allows(self.principal, self.peer.host, operation, kind, name)


class Call(Caller, ABC):
    """A request in flight. It is answered exactly once; responses are sent in the order of the requests."""

    __slots__ = (
        "api_key",
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
        self.api_key = request.api_key
        self.version = request.api_version
        self.node = node
        self.peer = peer
        self.cost = cost  # bytes held for the request, counted until it is answered
        self.size = 0  # bytes held for the answer, counted until it is sent
        self.is_done = False
        self.response: Message | None = None
        self.has_files = False  # whether the response has pieces of files
        self.must_close = False
        self.is_refused = False  # whether the answer has an error in it
        self.began = peer.active_at
        self.waited_s = 0.0  # for records to arrive
        self.span: Span | None = None
        self.poll: Poll | None = None  # what the connection ends when it closes

    @property
    def client_id(self) -> str:
        """The client id of the request."""
        return self.request.client_id or ""

    @abstractmethod
    def start(self) -> None:
        """Starts to serve the request."""

    def give_up(self, now: float) -> None:
        """Answers the request if its timeout has passed; called periodically until it is answered."""

    def answer(self, response: Message | None) -> None:
        """Completes the request; `response` is None if the client expects none."""
        self.response = response
        self.is_done = True
        self.peer.finished(self)

    def hang_up(self) -> None:
        """Completes the request without a response: the connection closes after the responses before it."""
        self.must_close = True
        self.answer(None)

    def encode(self) -> tuple[list[Any], int]:
        """Returns the response as buffers, and its size."""
        if self.response is None:
            return [], 0
        request = self.request
        return encode_response(request.api_key, self.version, request.correlation_id, self.response)
