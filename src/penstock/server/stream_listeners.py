"""Starts streams and their listeners, if a port is configured."""

from __future__ import annotations

from contextlib import AsyncExitStack
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from penstock.broker import Broker
from penstock.broker.streams import StreamEngine, StreamOptions, Streams
from penstock.server.config import NodeConfig
from penstock.server.errors import BadSettingError
from penstock.server.listener import cannot_listen
from penstock.server.node_ports import NodePorts
from penstock.server.security import tls_context

if TYPE_CHECKING:
    from penstock.gateway.stream.probe import StreamProbe


INLINE_BYTES_MAX: Final = 60 << 20  # a message of gRPC is at most 64 MiB


class _Gateway(Protocol):
    probe: StreamProbe

    @property
    def port(self) -> int: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class StreamListeners(NamedTuple):
    """Streams of a node, None if they are off, the ports of their listeners by name, and those themselves."""

    engine: StreamEngine | None
    ports: dict[str, int]
    gateways: list[_Gateway]


async def listen_streams(
    config: NodeConfig,
    broker: Broker,
    ports: NodePorts,
    closing: AsyncExitStack,
    *,
    random: Random,
    forward_secret: bytes | None,
) -> StreamListeners:
    """Start streams and the configured listeners."""
    wanted = [name for name in ("stream_port", "stream_http_port") if getattr(config, name) is not None]
    if not wanted:
        return StreamListeners(None, {}, [])
    try:
        # Only those who want it need what it is made with.
        from penstock.gateway.stream import Admission, StreamGateway, StreamHttp
    except ModuleNotFoundError as error:
        raise BadSettingError(
            f"{wanted[0]} is set, but {error.name} is not installed; run: pip install 'penstock[stream]', or set it to none"
        ) from error
    if config.stream_inline_bytes > INLINE_BYTES_MAX:
        raise BadSettingError(f"stream_inline_bytes is {config.stream_inline_bytes}; it is at most {INLINE_BYTES_MAX}")
    streams = await _open_engine(config, broker, random)
    closing.push_async_callback(streams.stop)
    admission = Admission(streams, broker, inline_bytes_max=config.stream_inline_bytes)
    listening: dict[str, int] = {}
    started: list[_Gateway] = []
    if config.stream_port is not None:
        gateway = StreamGateway(admission, server=ports.stream(), drain_timeout_s=config.drain_timeout_s)
        listening["stream"] = await _listen("stream_port", gateway, config.host, closing)
        started.append(gateway)
    if config.stream_http_port is not None:
        http = StreamHttp(
            admission,
            port=ports.http("stream_http_port"),
            advertised_host=config.advertised_host,
            drain_timeout_s=config.drain_timeout_s,
            tls=tls_context(config),
            forward_secret=forward_secret,
        )
        listening["stream_http"] = await _listen("stream_http_port", http, config.host, closing)
        started.append(http)
    return StreamListeners(streams, listening, started)


async def _open_engine(config: NodeConfig, broker: Broker, random: Random) -> StreamEngine:
    """Streams of this node itself, or in Tarantool and an object store."""
    if (config.stream_metadata is None) != (config.stream_payloads is None):
        raise BadSettingError("stream_metadata and stream_payloads belong together: set both, or none of them")
    if config.stream_metadata is None or config.stream_payloads is None:
        return await Streams.start(broker, StreamOptions(ttl_s=config.stream_ttl_s), random=random)
    try:
        from penstock.broker.streams.tarantool import TarantoolStreams, open_objects
    except ModuleNotFoundError as error:
        raise BadSettingError(
            f"stream_metadata is set, but {error.name} is not installed; run: pip install 'penstock[tarantool]'"
        ) from error
    return await TarantoolStreams.start(
        config.stream_metadata,
        open_objects(config.stream_payloads),
        ttl_s=config.stream_ttl_s,
        clock=broker.clock,
        random=random,
    )


async def _listen(key: str, gateway: _Gateway, host: str, closing: AsyncExitStack) -> int:
    try:
        await gateway.start()
    except OSError as error:
        raise cannot_listen(key, host, gateway.port, error) from error
    closing.push_async_callback(gateway.stop)
    return gateway.port
