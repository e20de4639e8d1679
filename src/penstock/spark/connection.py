"""One connection to one node: synchronous, one request at a time, in plain text or TLS, with SASL where it is asked for."""

from __future__ import annotations

import secrets
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from penstock import __version__
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
from penstock.spark.errors import BrokerRefusedError, BrokerUnreachableError
from penstock.spark.scram import ScramClient

DEFAULT_PORT: Final = 9092
FRAME_BYTES_MAX: Final = 1 << 30
API_VERSIONS_VERSION: Final = 3

# Newer versions of these name topics by id; where that is wanted the caller says so.
_VERSION_MAX: Final = {keys.FETCH: 12, keys.OFFSET_COMMIT: 9}
_ALL_APIS: Final = {**APIS, **PRIVATE_APIS}
_SIZE: Final = struct.Struct(">i")

R = TypeVar("R", bound=Message)


class Address(NamedTuple):
    """Where a node listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Security:
    """How connections are protected: TLS or not, and who we are. Certificates are files in PEM."""

    tls: bool = False
    ca_file: str | None = None
    certificate_file: str | None = None
    checks_host: bool = True
    username: str | None = None
    password: str | None = None
    mechanism: str = "PLAIN"

    def __repr__(self) -> str:
        return f"Security(tls={self.tls}, username={self.username!r})"  # a password is for no log


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Where the cluster is, who asks, and how long to try."""

    bootstrap: tuple[Address, ...]
    client_id: str = "penstock-spark"
    request_timeout_s: float = 30.0
    api_timeout_s: float = 60.0
    security: Security = Security()


class ReceiveBuffer:
    """Memory that answers are read to, used again for the next one: whoever keeps a view of an answer must be done with it."""

    def __init__(self) -> None:
        self._data = bytearray()

    def room(self, size: int) -> memoryview:
        """So many bytes of it. More than there is means new memory, never moved memory: old views stay what they are."""
        if len(self._data) < size:
            self._data = bytearray(size + size // 4)
        return memoryview(self._data)[:size]


class Sent(NamedTuple):
    """A request that was sent, and what is needed to read its answer."""

    key: int
    version: int
    correlation_id: int


class Connection:
    """A connection to one node. Any failure closes it."""

    def __init__(self, address: Address, options: ClientOptions) -> None:
        self.address = address
        self._options = options
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {keys.API_VERSIONS: (0, API_VERSIONS_VERSION)}
        try:
            self._socket = self._connect()
        except OSError as error:
            raise BrokerUnreachableError(
                f"cannot connect to {address}: {error.strerror or error}; is a node running there? kafka.bootstrap.servers says "
                "where to look first"
            ) from error
        try:
            # A node of Penstock tells its own of more than it tells others.
            introduction = ApiVersionsRequest(client_software_name="penstock", client_software_version=__version__)
            answer = self.call(keys.API_VERSIONS, introduction, ApiVersionsResponse)
            self._versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
            if options.security.username is not None:
                self._authenticate(options.security)
        except BaseException:
            self.close()
            raise

    def version_of(self, key: int, limit: int | None = None) -> int:
        """The newest version of a request that both sides speak; -1 if there is none."""
        api = _ALL_APIS[key]
        low, high = self._versions.get(key, (0, -1))
        version = min(high, api.max_version, _VERSION_MAX.get(key, api.max_version) if limit is None else limit)
        return version if version >= max(low, api.min_version) else -1

    def call(
        self,
        key: int,
        request: Message,
        response: type[R],
        *,
        version: int | None = None,
        wait_s: float = 0.0,
        buffer: ReceiveBuffer | None = None,
    ) -> R:
        """Send a request and wait for its answer. `wait_s` is how long the node itself may take its time; `buffer` is where the
        answer is read to; records in it are views of that."""
        sent = self.send(key, request, version=version, wait_s=wait_s)
        return self.receive(sent, response, buffer)

    def send(self, key: int, request: Message, *, version: int | None = None, wait_s: float = 0.0) -> Sent:
        """Send a request; its answer is to be taken with `receive`, in the order of sending."""
        chosen = self.version_of(key) if version is None else version
        if chosen < 0:
            raise BrokerRefusedError(
                f"the node at {self.address} does not serve {_ALL_APIS[key].name} in a version that we speak"
            )
        self._correlation_id += 1
        buffers, _ = encode_request(key, chosen, self._correlation_id, self._options.client_id, request)
        with self._failing_clearly(key):
            self._socket.settimeout(self._options.request_timeout_s + wait_s)
            self._socket.sendall(b"".join(buffers))
        return Sent(key, chosen, self._correlation_id)

    def receive(self, sent: Sent, response: type[R], buffer: ReceiveBuffer | None = None) -> R:
        """The answer to what was sent first of all that is not answered yet."""
        with self._failing_clearly(sent.key):
            correlation_id, answer = decode_response(sent.key, sent.version, self._receive(buffer or ReceiveBuffer()))
        if correlation_id != sent.correlation_id or not isinstance(answer, response):
            self.close()
            raise BrokerRefusedError(f"{self.address} answered another request than was sent; is it the right port?")
        return answer

    @contextmanager
    def _failing_clearly(self, key: int) -> Iterator[None]:
        """Whatever goes wrong within closes the connection and is told in words."""
        try:
            yield
        except TimeoutError as error:
            self.close()
            raise BrokerUnreachableError(
                f"{self.address} did not answer {_ALL_APIS[key].name} within {self._options.request_timeout_s:g} s "
                "(kafka.request.timeout.ms)"
            ) from error
        except OSError as error:
            self.close()
            raise BrokerUnreachableError(f"the connection to {self.address} broke: {error.strerror or error}") from error
        except ProtocolError as error:
            self.close()
            raise BrokerRefusedError(f"{self.address} does not answer as Kafka does: {error}; is it the right port?") from error

    def close(self) -> None:
        """Hang up, also on an answer that another thread is waiting for."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _connect(self) -> socket.socket:
        plain = socket.create_connection(self.address, timeout=self._options.request_timeout_s)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        security = self._options.security
        if not security.tls:
            return plain
        import ssl

        try:
            context = ssl.create_default_context(cafile=security.ca_file)
            context.check_hostname = security.checks_host
            if security.certificate_file is not None:
                context.load_cert_chain(security.certificate_file)
            return context.wrap_socket(plain, server_hostname=self.address.host)
        except BaseException:
            plain.close()
            raise

    def _authenticate(self, security: Security) -> None:
        shaken = self.call(keys.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=security.mechanism), SaslHandshakeResponse)
        if shaken.error_code:
            raise BrokerRefusedError(
                f"{self.address} does not take {security.mechanism} ({errors.error_name(shaken.error_code)}); it offers "
                f"{', '.join(shaken.mechanisms) or 'nothing'} for kafka.sasl.mechanism"
            )
        username, password = security.username or "", security.password or ""
        if security.mechanism == "PLAIN":
            self._prove(security, f"\0{username}\0{password}".encode())
            return
        scram = ScramClient(security.mechanism, username, password, secrets.token_urlsafe(18))
        scram.check(self._prove(security, scram.answer(self._prove(security, scram.first()))))

    def _prove(self, security: Security, token: bytes) -> bytes:
        answer = self.call(keys.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse)
        if answer.error_code:
            reason = answer.error_message or errors.error_name(answer.error_code)
            raise BrokerRefusedError(f"{self.address} does not let {security.username!r} in: {reason}")
        return answer.auth_bytes

    def _receive(self, buffer: ReceiveBuffer) -> memoryview:
        size: int = _SIZE.unpack(self._read(memoryview(bytearray(_SIZE.size))))[0]
        if not 0 < size <= FRAME_BYTES_MAX:
            raise ProtocolError(f"a frame of {size} bytes")
        return self._read(buffer.room(size))

    def _read(self, view: memoryview) -> memoryview:
        got = 0
        while got < len(view):
            count = self._socket.recv_into(view[got:])
            if count == 0:
                raise ConnectionResetError(0, "the node hung up")
            got += count
        return view.toreadonly()
