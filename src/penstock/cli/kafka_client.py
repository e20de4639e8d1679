"""A small Kafka client for commands: synchronous, one connection a node, one request at a time."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeVar

from penstock import __version__
from penstock.cli.exit_codes import ExitCode
from penstock.cli.failure import CommandError, usage
from penstock.cli.sign_in import Identity
from penstock.kafka.protocol import APIS, Message, ProtocolError, decode_response, encode_request, errors, keys
from penstock.kafka.protocol.cluster import ApiVersionsRequest, ApiVersionsResponse
from penstock.kafka.protocol.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from penstock.kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
DEFAULT_PORT: Final = 9092
DEFAULT_TIMEOUT_S: Final = 15.0
RETRY_PAUSE_S: Final = 0.1
FRAME_BYTES_MAX: Final = 256 << 20

# Newer versions of these name topics by id, which a command has no use for.
_VERSION_MAX: Final = {
    keys.PRODUCE: 12,
    keys.FETCH: 12,
    keys.DELETE_TOPICS: 5,
    keys.METADATA: 12,
    keys.LIST_OFFSETS: 7,
    keys.OFFSET_COMMIT: 9,
    keys.OFFSET_FETCH: 9,
}
_SIZE: Final = struct.Struct(">i")

# What a command can be told that goes away by itself; an unknown topic does not.
_PASSING: Final = frozenset(
    {
        errors.LEADER_NOT_AVAILABLE,
        errors.NOT_LEADER_OR_FOLLOWER,
        errors.REQUEST_TIMED_OUT,
        errors.REPLICA_NOT_AVAILABLE,
        errors.NETWORK_EXCEPTION,
        errors.COORDINATOR_LOAD_IN_PROGRESS,
        errors.COORDINATOR_NOT_AVAILABLE,
        errors.NOT_COORDINATOR,
        errors.NOT_ENOUGH_REPLICAS,
        errors.NOT_CONTROLLER,
        errors.KAFKA_STORAGE_ERROR,
        errors.UNKNOWN_LEADER_EPOCH,
        errors.FENCED_LEADER_EPOCH,
        errors.OFFSET_NOT_AVAILABLE,
    }
)

R = TypeVar("R", bound=Message)
T = TypeVar("T")


class KafkaError(CommandError):
    """The node answered with an error."""

    def __init__(self, what: str, code: int, message: str | None = None) -> None:
        name = errors.error_name(code)
        super().__init__(f"{what}: {message} ({name})" if message else f"{what}: {_SENTENCES.get(code, name)}")
        self.code = code

    @property
    def is_passing(self) -> bool:
        """Whether the same request may well succeed in a moment."""
        return self.code in _PASSING


class LostConnectionError(CommandError):
    """The connection broke before the answer came; whether the request was carried out is not known."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ExitCode.NO_CONNECTION)


_SENTENCES: Final = {
    errors.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition; `penstock topic list` shows what there is",
    errors.OFFSET_OUT_OF_RANGE: "there is no such offset (OFFSET_OUT_OF_RANGE); `penstock topic describe` shows which there are",
    errors.MESSAGE_TOO_LARGE: "the message is too large for the topic (MESSAGE_TOO_LARGE); raise its max.message.bytes",
    errors.TOPIC_ALREADY_EXISTS: "the topic is there already (TOPIC_ALREADY_EXISTS)",
    errors.INVALID_TOPIC_EXCEPTION: "that cannot name a topic (INVALID_TOPIC_EXCEPTION); use letters, digits, '.', '_' and '-'",
    errors.KAFKA_STORAGE_ERROR: "the node cannot store it (KAFKA_STORAGE_ERROR); `penstock status` says why",
    **{
        code: f"no access rule allows it ({errors.error_name(code)}); the administrator adds one with `penstock access allow`"
        for code in (
            errors.TOPIC_AUTHORIZATION_FAILED,
            errors.GROUP_AUTHORIZATION_FAILED,
            errors.CLUSTER_AUTHORIZATION_FAILED,
        )
    },
}


class Address(NamedTuple):
    """Where a node listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(text: str) -> list[Address]:
    """Addresses as given to --bootstrap: `host:port`, several separated by commas, the port 9092 if left out."""
    found = []
    for item in filter(None, (item.strip() for item in text.split(","))):
        bracketed = item.startswith("[")
        host, _, port = item[1:].partition("]") if bracketed else item.partition(":")
        port = port.removeprefix(":") if bracketed else port
        if not host or (port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536)):
            raise usage(f"--bootstrap: {item!r} is not an address; write HOST:PORT, such as {DEFAULT_BOOTSTRAP}")
        found.append(Address(host, int(port or DEFAULT_PORT)))
    if not found:
        raise usage(f"--bootstrap is empty; write HOST:PORT, such as {DEFAULT_BOOTSTRAP}")
    return found


class Connection:
    """A connection to one node. Any failure closes it."""

    def __init__(self, address: Address, timeout_s: float, identity: Identity) -> None:
        self.address = address
        self._timeout_s = timeout_s
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {keys.API_VERSIONS: (0, 0)}
        try:
            self._socket = identity.wrap(socket.create_connection(address, timeout=timeout_s), address.host)
        except OSError as error:
            raise LostConnectionError(
                f"cannot connect to {address}: {error.strerror or error}; is a node running there? `penstock up` starts one, "
                "--bootstrap names another"
            ) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answer = self.call(keys.API_VERSIONS, ApiVersionsRequest(), ApiVersionsResponse)
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        if identity.user is not None:
            self._sign_in(identity)

    def _sign_in(self, identity: Identity) -> None:
        request = SaslHandshakeRequest(mechanism=identity.mechanism)
        code = self.call(keys.SASL_HANDSHAKE, request, SaslHandshakeResponse).error_code
        if code == errors.ILLEGAL_SASL_STATE:
            return  # The node does not ask who it is.
        if code:
            raise KafkaError(f"signing in as {identity.user!r}", code)

        def exchange(token: bytes) -> bytes:
            answer = self.call(keys.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse)
            if answer.error_code:
                raise KafkaError(f"signing in as {identity.user!r}", answer.error_code, answer.error_message)
            return bytes(answer.auth_bytes)

        identity.prove(exchange)

    def serves(self, key: int) -> bool:
        """Whether the node knows this request."""
        return key in self._versions

    def call(self, key: int, request: Message, response: type[R], *, wait_s: float = 0.0) -> R:
        """Send a request and wait for its answer; `wait_s` is how long the node itself may take its time."""
        api = APIS[key]
        low, high = self._versions.get(key, (0, -1))
        version = min(high, api.max_version, _VERSION_MAX.get(key, api.max_version))
        if version < max(low, api.min_version):
            raise CommandError(f"the node at {self.address} does not serve {api.name} in a version that this command speaks")
        self._correlation_id += 1
        buffers, _ = encode_request(key, version, self._correlation_id, f"penstock-cli-{__version__}", request)
        try:
            self._socket.settimeout(self._timeout_s + wait_s)
            self._socket.sendall(b"".join(buffers))
            frame = self._receive()
            correlation_id, answer = decode_response(key, version, frame)
        except TimeoutError as error:
            self.close()
            raise LostConnectionError(f"{self.address} did not answer within {self._timeout_s:g} s; see --timeout") from error
        except OSError as error:
            self.close()
            raise LostConnectionError(f"the connection to {self.address} broke: {error.strerror or error}") from error
        except ProtocolError as error:
            self.close()
            raise CommandError(f"{self.address} does not answer as Kafka does: {error}; is it the right port?") from error
        if correlation_id != self._correlation_id or not isinstance(answer, response):
            self.close()
            raise CommandError(f"{self.address} answered another request than was sent; is it the right port?")
        return answer

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def _receive(self) -> memoryview:
        size: int = _SIZE.unpack(self._read(_SIZE.size))[0]
        if not 0 < size <= FRAME_BYTES_MAX:
            raise ProtocolError(f"a frame of {size} bytes")
        return self._read(size)

    def _read(self, size: int) -> memoryview:
        buffer = bytearray(size)
        view = memoryview(buffer)
        got = 0
        while got < size:
            count = self._socket.recv_into(view[got:])
            if count == 0:
                raise ConnectionResetError(0, "the node hung up; if it asks its clients who they are, see --user and --tls-ca")
            got += count
        return view.toreadonly()


class Client:
    """The cluster behind some bootstrap addresses: who leads which partition, and a connection to each node."""

    def __init__(self, bootstrap: list[Address], timeout_s: float = DEFAULT_TIMEOUT_S, identity: Identity | None = None) -> None:
        self.timeout_s = timeout_s
        self._identity = identity or Identity()
        self._bootstrap = bootstrap
        self._nodes: dict[int, Address] = {}
        self._connections: dict[Address, Connection] = {}

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up everywhere."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def any_node(self) -> Connection:
        """A connection to whichever node answers first."""
        failure: CommandError | None = None
        for address in dict.fromkeys([*self._connections, *self._nodes.values(), *self._bootstrap]):
            try:
                return self._connect(address)
            except CommandError as error:
                failure = error
        assert failure is not None
        raise failure

    def node(self, node_id: int) -> Connection:
        """A connection to one node."""
        if node_id not in self._nodes:
            raise KafkaError(f"node {node_id}", errors.LEADER_NOT_AVAILABLE)
        return self._connect(self._nodes[node_id])

    def call(self, key: int, request: Message, response: type[R]) -> R:
        """Send a request that any node takes."""
        return self._call(self.any_node(), key, request, response, 0.0)

    def node_call(self, node_id: int, key: int, request: Message, response: type[R], *, wait_s: float = 0.0) -> R:
        """Send a request to one node."""
        return self._call(self.node(node_id), key, request, response, wait_s)

    def metadata(self, topics: Iterable[str] | None, *, create: bool = False) -> MetadataResponse:
        """The nodes, and some topics or all of them; `create` asks for those that are missing to be made."""
        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=create)
        answer = self.call(keys.METADATA, request, MetadataResponse)
        self._nodes = {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
        return answer

    def topic(self, name: str, *, create: bool = False) -> MetadataResponseTopic:
        """One topic, all of whose partitions have a leader."""

        def ask() -> MetadataResponseTopic:
            (topic,) = self.metadata([name], create=create).topics
            for code in (topic.error_code, *(partition.error_code for partition in topic.partitions)):
                if code == errors.UNKNOWN_TOPIC_OR_PARTITION:
                    raise KafkaError(f"topic {name!r}", code, f"there is no topic {name!r}; `penstock topic create` makes one")
                if code:
                    raise KafkaError(f"topic {name!r}", code)
            return topic

        return self.persist(ask)

    def persist(self, attempt: Callable[[], T]) -> T:
        """Try until it works, as long as what fails may pass and the timeout has not. Not for what must not happen twice."""
        deadline = time.monotonic() + self.timeout_s
        while True:
            try:
                return attempt()
            except (LostConnectionError, KafkaError) as error:
                passing = error.is_passing if isinstance(error, KafkaError) else bool(self._nodes)
                if not passing or time.monotonic() + RETRY_PAUSE_S >= deadline:
                    raise
            time.sleep(RETRY_PAUSE_S)

    def _call(self, connection: Connection, key: int, request: Message, response: type[R], wait_s: float) -> R:
        try:
            return connection.call(key, request, response, wait_s=wait_s)
        except LostConnectionError:
            # It is made anew when it is next needed.
            self._connections.pop(connection.address, None)
            raise

    def _connect(self, address: Address) -> Connection:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = Connection(address, self.timeout_s, self._identity)
        return connection
