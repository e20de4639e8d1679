"""One connection to one node: versions, sign-in, requests and their replies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Final, NamedTuple, TypeVar

from penstock import __version__
from penstock.kafka.client.address import Address
from penstock.kafka.client.errors import BrokerRefusedError, BrokerUnreachableError
from penstock.kafka.client.network import ByteStream, Network
from penstock.kafka.client.options import ClientOptions, ClientSecurity
from penstock.kafka.protocol import (
    APIS,
    PRIVATE_APIS,
    Message,
    ProtocolError,
    decode_response,
    encode_request,
    errors,
    keys,
)
from penstock.kafka.protocol.cluster import ApiVersionsRequest, ApiVersionsResponse
from penstock.kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from penstock.kafka.scram import ScramClient, ScramError

FRAME_BYTES_MAX: Final = 1 << 30
API_VERSIONS_VERSION: Final = 3

# Newer versions of these name topics by id; a caller who wants that says so.
_BY_NAME_MAX: Final = {
    keys.PRODUCE: 12,
    keys.FETCH: 12,
    keys.DELETE_TOPICS: 5,
    keys.OFFSET_COMMIT: 9,
    keys.OFFSET_FETCH: 9,
}
_ALL_APIS: Final = {**APIS, **PRIVATE_APIS}
_INT32: Final = Struct(">i")

R = TypeVar("R", bound=Message)


class ReceiveBuffer:
    """Memory that replies are read into and that the next reply reuses: views of a reply are valid until then."""

    def __init__(self) -> None:
        self._data = bytearray()

    def room(self, size: int) -> memoryview:
        """Return `size` bytes of it. Growing it takes new memory, so views handed out before stay as they are."""
        if len(self._data) < size:
            self._data = bytearray(size + size // 4)
        return memoryview(self._data)[:size]


class SentRequest(NamedTuple):
    """A request in flight, and what is needed to read its reply."""

    key: int
    version: int
    correlation_id: int
    wait_s: float


class Connection:
    """A connection to one node. Any failure closes it. Several tasks may call at the same time; replies find their requests."""

    def __init__(self, address: Address, options: ClientOptions, network: Network, stream: ByteStream) -> None:
        self.address = address
        self._options = options
        self._network = network
        self._stream = stream
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {keys.API_VERSIONS: (0, API_VERSIONS_VERSION)}
        self._receiving = network.lock()
        self._unclaimed: dict[int, memoryview] = {}

    @classmethod
    async def open(cls, address: Address, options: ClientOptions, network: Network, timeout_s: float) -> Connection:
        """Connect, agree on versions and sign in."""
        names = options.names
        try:
            stream = await network.connect(address, options.security, timeout_s)
        except OSError as error:
            reason = error.strerror or str(error) or type(error).__name__
            hint = "is a node running there? `penstock up` starts one,"
            if options.security.tls:
                hint = f"does it speak TLS, with a certificate that {names.tls} trusts?"
            raise BrokerUnreachableError(
                f"cannot connect to {address}: {reason}; {hint} {names.bootstrap} says where to look first"
            ) from error
        connection = cls(address, options, network, stream)
        try:
            # A node of Penstock offers its private requests to clients that introduce themselves.
            introduction = ApiVersionsRequest(client_software_name="penstock", client_software_version=__version__)
            offered = await connection.call(keys.API_VERSIONS, introduction, ApiVersionsResponse)
            connection._versions = {api.api_key: (api.min_version, api.max_version) for api in offered.api_keys}
            if options.security.username is not None:
                await connection._sign_in(options.security)
        except BaseException:
            connection.close()
            raise
        return connection

    def version_of(self, key: int, limit: int | None = None) -> int:
        """Return the newest version of a request that both sides speak, -1 if there is none."""
        api = _ALL_APIS[key]
        low, high = self._versions.get(key, (0, -1))
        version = min(high, api.max_version, _BY_NAME_MAX.get(key, api.max_version) if limit is None else limit)
        return version if version >= max(low, api.min_version) else -1

    async def call(
        self,
        key: int,
        request: Message,
        response: type[R],
        *,
        version: int | None = None,
        wait_s: float = 0.0,
        buffer: ReceiveBuffer | None = None,
    ) -> R:
        """Send a request and wait for its reply. `wait_s` is how long the node may hold it back on purpose. The reply is read
        into `buffer`, and records in it are views of that; a buffer is for connections with one caller."""
        sent = await self.send(key, request, version=version, wait_s=wait_s)
        return await self.receive(sent, response, buffer)

    async def send(self, key: int, request: Message, *, version: int | None = None, wait_s: float = 0.0) -> SentRequest:
        """Send a request; `receive` takes its reply."""
        chosen = self.version_of(key) if version is None else version
        if chosen < 0:
            raise BrokerRefusedError(
                f"the node at {self.address} does not serve {_ALL_APIS[key].name} in a version that this client speaks"
            )
        self._correlation_id += 1
        sent = SentRequest(key, chosen, self._correlation_id, wait_s)
        buffers, _ = encode_request(key, chosen, sent.correlation_id, self._options.client_id, request)
        with self._closing_on_failure(key):
            await self._stream.send(b"".join(buffers), self._options.request_timeout_s)
        return sent

    async def receive(self, sent: SentRequest, response: type[R], buffer: ReceiveBuffer | None = None) -> R:
        """Wait for the reply to a request."""
        with self._closing_on_failure(sent.key):
            async with self._receiving:
                while sent.correlation_id not in self._unclaimed:
                    frame = await self._receive_frame(buffer or ReceiveBuffer(), sent.wait_s)
                    self._unclaimed[_INT32.unpack_from(frame)[0]] = frame
                    if len(self._unclaimed) > self._correlation_id:
                        raise ProtocolError("a reply to a request that was not sent")
            _, reply = decode_response(sent.key, sent.version, self._unclaimed.pop(sent.correlation_id))
            if not isinstance(reply, response):
                raise ProtocolError("a reply to another request")
        return reply

    def close(self) -> None:
        """Hang up, also on a reply that another thread or task waits for."""
        self._stream.close()

    @contextmanager
    def _closing_on_failure(self, key: int) -> Iterator[None]:
        """Close the connection on any failure within, and say what happened."""
        name, names = _ALL_APIS[key].name, self._options.names
        try:
            yield
        except TimeoutError as error:
            self.close()
            raise BrokerUnreachableError(
                f"{self.address} did not answer {name} within {self._options.request_timeout_s:g} s ({names.timeout})"
            ) from error
        except OSError as error:
            self.close()
            raise BrokerUnreachableError(
                f"the connection to {self.address} broke: {error.strerror or error}{self._hang_up_hint(key)}"
            ) from error
        except ProtocolError as error:
            self.close()
            raise BrokerRefusedError(f"{self.address} does not answer as Kafka does: {error}; is it the right port?") from error
        except BaseException:
            self.close()  # cancelled between a request and its reply
            raise

    def _hang_up_hint(self, key: int) -> str:
        """Why the node may have closed the connection, judged by the request that failed."""
        security, names = self._options.security, self._options.names
        if key == keys.API_VERSIONS:
            return "" if security.tls else f"; if it requires TLS, set {names.tls}"
        if security.username is None:
            return f"; if it requires authentication, set {names.sign_in}"
        return ""

    async def _sign_in(self, security: ClientSecurity) -> None:
        request = SaslHandshakeRequest(mechanism=security.mechanism)
        reply = await self.call(keys.SASL_HANDSHAKE, request, SaslHandshakeResponse)
        if reply.error_code == errors.ILLEGAL_SASL_STATE and not security.needs_sasl:
            return
        if reply.error_code:
            raise BrokerRefusedError(
                f"{self.address} does not accept {security.mechanism} ({errors.error_name(reply.error_code)}); it offers "
                f"{', '.join(reply.mechanisms) or 'nothing'} for {self._options.names.mechanism}"
            )
        username, password = security.username or "", security.password or ""
        if security.mechanism == "PLAIN":
            await self._exchange(security, f"\0{username}\0{password}".encode())
            return
        scram = ScramClient(security.mechanism, username, password, self._network.nonce())
        try:
            proof = scram.answer(await self._exchange(security, scram.first()))
            scram.check(await self._exchange(security, proof))
        except ScramError as error:
            raise BrokerRefusedError(f"signing in to {self.address} as {username!r}: {error}") from error

    async def _exchange(self, security: ClientSecurity, token: bytes) -> bytes:
        request = SaslAuthenticateRequest(auth_bytes=token)
        reply = await self.call(keys.SASL_AUTHENTICATE, request, SaslAuthenticateResponse)
        if reply.error_code:
            reason = reply.error_message or errors.error_name(reply.error_code)
            raise BrokerRefusedError(f"{self.address} does not let {security.username!r} in: {reason}")
        return bytes(reply.auth_bytes)

    async def _receive_frame(self, buffer: ReceiveBuffer, wait_s: float) -> memoryview:
        timeout_s = self._options.request_timeout_s + wait_s
        head = memoryview(bytearray(_INT32.size))
        await self._stream.receive(head, timeout_s)
        size: int = _INT32.unpack(head)[0]
        if not _INT32.size <= size <= FRAME_BYTES_MAX:
            raise ProtocolError(f"a frame of {size} bytes")
        view = buffer.room(size)
        await self._stream.receive(view, timeout_s)
        return view.toreadonly()
