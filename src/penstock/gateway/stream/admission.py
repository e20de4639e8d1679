"""Signs callers in, and counts their calls in flight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.broker import Broker
from penstock.broker.streams import StreamEngine
from penstock.gateway.basic_sign_in import ANONYMOUS, BasicSignIn
from penstock.gateway.grpc_bodies import RequestBodies
from penstock.gateway.stream.caller import StreamCaller
from penstock.gateway.stream.probe import StreamProbe

CLIENT_ID: Final = "stream"  # of callers that send no client id
CLIENT_HEADER: Final = "penstock-client-id"


class Admission:
    """Signs in the callers of both listeners. Without security everyone is anonymous."""

    def __init__(self, streams: StreamEngine, broker: Broker, *, inline_bytes_max: int) -> None:
        self._streams = streams
        self._broker = broker
        self._sign_in = BasicSignIn(broker, "stream")
        self.inline_bytes_max = inline_bytes_max  # of data that is sent with its message
        self.probe = StreamProbe()
        self.bodies = RequestBodies()  # of gRPC calls
        self.calls_in_flight: Counter[str] = Counter()  # of gRPC, by connection

    async def admit(self, authorization: str, host: str, client: str = "") -> StreamCaller:
        """Sign a caller in. NotSignedInError if it must authenticate and has not."""
        await self._broker.confirm()
        principal = ANONYMOUS if self._broker.access is None else await self._sign_in.principal(authorization, host)
        return StreamCaller(self._streams, self._broker, self.probe, principal=principal, host=host, client=client or CLIENT_ID)

    @contextmanager
    def track_call(self, peer: str) -> Iterator[None]:
        """Count a gRPC call as in flight; gRPC has no other list of its connections."""
        self.calls_in_flight[peer] += 1
        try:
            yield
        finally:
            self.calls_in_flight[peer] -= 1
            if not self.calls_in_flight[peer]:
                del self.calls_in_flight[peer]

    def close(self) -> None:
        """End the waits of followers, so that the node can stop."""
        self._streams.followers.close()
