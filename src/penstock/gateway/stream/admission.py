"""Who a caller is, and so which streams it may use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.broker import Broker
from penstock.broker.streams import StreamEngine
from penstock.gateway.basic_sign_in import ANONYMOUS, BasicSignIn
from penstock.gateway.grpc_bodies import RequestBodies
from penstock.gateway.stream.guarded import GuardedStreams
from penstock.gateway.stream.held_back import HeldBackStreams
from penstock.gateway.stream.probe import StreamProbe

CLIENT_ID: Final = "stream"  # of those who do not name themselves
CLIENT_HEADER: Final = "penstock-client-id"


class Admission:
    """Lets callers in, each to what it may use. Without security and access rules, everyone to everything."""

    def __init__(self, streams: StreamEngine, broker: Broker, *, inline_bytes_max: int) -> None:
        self._streams = streams
        self._broker = broker
        self._sign_in = BasicSignIn(broker, "stream")
        self.inline_bytes_max = inline_bytes_max  # of data that comes with its message
        self.probe = StreamProbe()
        self.bodies = RequestBodies()  # of calls of gRPC
        self.calling: Counter[str] = Counter()  # how many calls of gRPC each connection has under way

    async def admit(self, authorization: str, host: str, client: str = "") -> StreamEngine:
        """The streams as the caller may use them, who may also name its client. NotSignedInError if it must say who it is, and
        has not."""
        access = self._broker.access
        principal = ANONYMOUS if access is None else await self._sign_in.principal(authorization, host)
        user = principal.removeprefix("User:")
        streams = HeldBackStreams(self._streams, self._broker.quotas, self.probe, user, client or CLIENT_ID)
        return streams if access is None else GuardedStreams(streams, self._broker, access, principal, host)

    @contextmanager
    def under_way(self, peer: str) -> Iterator[None]:
        """A call of gRPC, which does not tell of connections otherwise."""
        self.calling[peer] += 1
        try:
            yield
        finally:
            self.calling[peer] -= 1
            if not self.calling[peer]:
                del self.calling[peer]

    def close(self) -> None:
        """The node is about to stop: those who follow are not to keep it."""
        self._streams.followers.close()
