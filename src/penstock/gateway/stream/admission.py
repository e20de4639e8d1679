"""Who a caller is, and so which streams it may use."""

from __future__ import annotations

from penstock.broker import Broker
from penstock.broker.streams import StreamEngine
from penstock.gateway.basic_sign_in import BasicSignIn
from penstock.gateway.stream.guarded import GuardedStreams
from penstock.gateway.stream.probe import StreamProbe


class Admission:
    """Lets callers in, each to what it may use. Without security and access rules, everyone to everything."""

    def __init__(self, streams: StreamEngine, broker: Broker) -> None:
        self._streams = streams
        self._broker = broker
        self._sign_in = BasicSignIn(broker)
        self.probe = StreamProbe()

    async def admit(self, authorization: str, host: str) -> StreamEngine:
        """The streams as the caller may use them. NotSignedInError if it must say who it is, and has not."""
        access = self._broker.access
        if access is None:
            return self._streams
        principal = await self._sign_in.principal(authorization)
        return GuardedStreams(self._streams, self._broker, access, principal, host)

    def close(self) -> None:
        """The node is about to stop: those who follow are not to keep it."""
        self._streams.followers.close()
