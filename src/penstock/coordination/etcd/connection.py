"""Calls to etcd: one channel an endpoint, a deadline for each attempt, another endpoint after one that failed.

Only what may be done twice is sent twice. A transaction is sent once, over a connection that stands; if its answer does not
come, the caller is told that.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from penstock.coordination.etcd.endpoints import EndpointChoice
from penstock.coordination.etcd.failures import Failure, error_of, failure_of
from penstock.coordination.etcd.messages import message
from penstock.coordination.etcd.options import EtcdOptions
from penstock.coordination.port import CoordinationUnavailableError
from penstock.core.errors import ClosedError, ConfigError, PenstockError

CONNECT_S: Final = 0.3
"""How long to wait for a connection to one endpoint before the next is tried; it goes on connecting meanwhile."""
WHY_S: Final = 0.1
SIGN_INS_MAX: Final = 2

_CHANNEL_OPTIONS: Final = (
    ("grpc.enable_retries", 0),  # the library must not repeat what we do not
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 10_000),  # etcd forbids more than one in 5 s
    ("grpc.keepalive_timeout_ms", 3000),
    ("grpc.max_receive_message_length", -1),
)


class EtcdCallError(Exception):
    """A call that failed, by kind; never leaves this package."""

    def __init__(self, failure: Failure, details: str) -> None:
        super().__init__(details)
        self.failure = failure
        self.details = details


class EtcdConnection:
    """The channels to all endpoints and the token we signed in with."""

    def __init__(self, options: EtcdOptions, now: Callable[[], float], rng: random.Random) -> None:
        self._options = options
        self._now = now
        self._choice = EndpointChoice(len(options.targets), rng.randrange(len(options.targets)))
        self._channels: list[Any] = []
        self._token: str | None = None
        self._opening = asyncio.Lock()
        self._signing_in = asyncio.Lock()
        self._is_closed = False

    async def close(self) -> None:
        """Close all channels."""
        self._is_closed = True
        channels, self._channels = self._channels, []
        for channel in channels:
            await channel.close()

    async def ask(self, method: str, request: Any, answer: Any) -> Any:
        """Ask something that changes nothing or may be done twice, of one endpoint after the other until the deadline."""
        deadline = self._now() + self._options.read_s
        while True:
            try:
                return await self.ask_once(method, request, answer, min(self._options.call_s, deadline - self._now()))
            except EtcdCallError as error:
                if error.failure not in (Failure.ELSEWHERE, Failure.NOT_DONE):
                    raise error_of(error.failure, self._name(method), error.details) from error
                if self._now() + 0.05 >= deadline:
                    raise self._unavailable(method, error.details) from error
            await asyncio.sleep(0.02)

    async def ask_once(self, method: str, request: Any, answer: Any, timeout_s: float) -> Any:
        """Send a request once, over a connection that stands. EtcdCallError if it fails; ELSEWHERE means that it may have been
        done."""

        async def send(channel: Any) -> Any:
            call = channel.unary_unary(method, type(request).SerializeToString, answer.FromString)
            return await call(request, timeout=timeout_s, metadata=self.metadata())

        return await self._signed_in(send, timeout_s)

    async def ask_stream_once(self, method: str, request: Any, answer: Any, timeout_s: float) -> Any:
        """Send one request over a stream of its own and wait for one answer."""

        async def send(channel: Any) -> Any:
            stub = channel.stream_stream(method, type(request).SerializeToString, answer.FromString)
            call = stub(timeout=timeout_s, metadata=self.metadata())
            try:
                await call.write(request)
                response = await call.read()
            finally:
                call.cancel()
            if response is grpc.aio.EOF:
                raise EtcdCallError(Failure.ELSEWHERE, "the stream ended without an answer")
            return response

        return await self._signed_in(send, timeout_s)

    async def open_stream(self, method: str, request_kind: Any, answer: Any) -> tuple[Any, int]:
        """Open a stream to the endpoint that is best now; returns it and the endpoint's number."""
        await self._sign_in_first(self._options.call_s)
        endpoint, channel = await self._ready(self._options.call_s)
        stub = channel.stream_stream(method, request_kind.SerializeToString, answer.FromString)
        return stub(metadata=self.metadata()), endpoint

    def note_failed(self, endpoint: int) -> None:
        """An endpoint failed; the next call goes to another."""
        self._choice.note_failed(endpoint)

    def forget_token(self) -> None:
        """The token is of no use any more; the next call signs in."""
        self._token = None

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What goes with each call: refuse at once if there is no leader, and who we are."""
        token = (("token", self._token),) if self._token else ()
        return (("hasleader", "true"), *token)

    async def _signed_in(self, send: Callable[[Any], Any], timeout_s: float) -> Any:
        """Send something, after signing in if that is needed; a token that has ended is replaced."""
        for _ in range(SIGN_INS_MAX):
            await self._sign_in_first(timeout_s)
            try:
                return await self._send(send, timeout_s)
            except EtcdCallError as error:
                if error.failure is not Failure.SIGN_IN or not self._options.user:
                    raise
                self.forget_token()
        raise EtcdCallError(Failure.SIGN_IN, "signing in did not help")

    async def _send(self, send: Callable[[Any], Any], timeout_s: float) -> Any:
        endpoint, channel = await self._ready(timeout_s)
        try:
            return await send(channel)
        except grpc.aio.AioRpcError as error:
            details = f"{error.code().name}: {error.details()}"
            failure = failure_of(error.code(), details)
            if failure is Failure.ELSEWHERE:
                self.note_failed(endpoint)
            raise EtcdCallError(failure, f"{self._options.endpoints[endpoint]}: {details}") from error

    async def _sign_in_first(self, timeout_s: float) -> None:
        if not self._must_sign_in():
            return
        async with self._signing_in:
            if not self._must_sign_in():
                return
            request = message("AuthenticateRequest")(name=self._options.user, password=self._options.password)
            answer = message("AuthenticateResponse")

            async def send(channel: Any) -> Any:
                call = channel.unary_unary("/etcdserverpb.Auth/Authenticate", type(request).SerializeToString, answer.FromString)
                return await call(request, timeout=max(timeout_s, 1.0))  # checking a password takes a while on purpose

            self._token = (await self._send(send, timeout_s)).token

    def _must_sign_in(self) -> bool:
        return bool(self._options.user) and self._token is None

    async def _ready(self, timeout_s: float) -> tuple[int, Any]:
        """A channel that is connected, of the best endpoint; EtcdCallError if there is none in time, and then nothing was
        sent."""
        await self._open_channels()
        deadline = self._now() + timeout_s
        while True:
            connected = self._choice.prefer(self._is_connected)
            if connected is not None:
                return connected, self._channels[connected]
            for _ in self._channels:
                endpoint = self._choice.current
                channel = self._channels[endpoint]
                if await self._is_ready(channel, min(CONNECT_S, deadline - self._now())):
                    return endpoint, channel
                self.note_failed(endpoint)
            if self._now() >= deadline:
                raise await self._unreachable()

    async def _unreachable(self) -> EtcdCallError:
        """Why no endpoint can be reached: a call that fails at once tells, where the state of a channel does not."""
        endpoint = self._choice.current
        request, answer = message("RangeRequest")(key=b"\0", limit=1), message("RangeResponse")
        call = self._channels[endpoint].unary_unary("/etcdserverpb.KV/Range", type(request).SerializeToString, answer.FromString)
        details = "not connected in time"
        try:
            await call(request, timeout=WHY_S)
        except grpc.aio.AioRpcError as error:
            details = error.details() or details
        failure = Failure.REFUSED if failure_of(grpc.StatusCode.UNKNOWN, details) is Failure.REFUSED else Failure.NOT_DONE
        return EtcdCallError(failure, f"no endpoint can be reached (last: {self._options.endpoints[endpoint]}: {details})")

    def _is_connected(self, endpoint: int) -> bool:
        """Whether a channel stands; one that does not is told to connect, to be there when it is needed."""
        return self._channels[endpoint].get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY

    async def _is_ready(self, channel: Any, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(max(0.0, timeout_s)):
                while (state := channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
                    await channel.wait_for_state_change(state)
                    if channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                        return False
        except TimeoutError:
            return False
        return True

    async def _open_channels(self) -> None:
        async with self._opening:
            if self._is_closed:
                raise ClosedError("the connection to etcd is closed")
            if self._channels:
                return
            credentials = await self._credentials() if self._options.uses_tls else None
            for target in self._options.targets:
                self._channels.append(
                    grpc.aio.insecure_channel(target, options=_CHANNEL_OPTIONS)
                    if credentials is None
                    else grpc.aio.secure_channel(target, credentials, options=_CHANNEL_OPTIONS)
                )

    async def _credentials(self) -> Any:
        options = self._options
        ca, cert, key = [await asyncio.to_thread(_read, path) for path in (options.ca_file, options.cert_file, options.key_file)]
        return grpc.ssl_channel_credentials(ca, key, cert)

    def _name(self, method: str) -> str:
        return f"etcd's {method.rpartition('/')[2]}"

    def _unavailable(self, method: str, details: str) -> PenstockError:
        return CoordinationUnavailableError(
            f"{self._name(method)} got no answer within {self._options.read_s:g} s"
            f" from any of {', '.join(self._options.endpoints)} (last: {details})"
        )


def _read(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}, which is needed to reach etcd: {error.strerror}") from error
