"""Streams of a node: started when a listener for them is asked for, and the listeners."""

from __future__ import annotations

from contextlib import AsyncExitStack
from random import Random

from penstock.broker import Broker
from penstock.broker.streams import StreamOptions, Streams
from penstock.server.config import NodeConfig
from penstock.server.errors import BadSettingError, ListenError


async def listen_streams(config: NodeConfig, broker: Broker, closing: AsyncExitStack, random: Random) -> dict[str, int]:
    """Start streams and their listeners, if there are to be any; their ports, by the names of the listeners."""
    if config.stream_port is None:
        return {}
    try:
        # Only those who want it need what it is made with.
        from penstock.gateway.stream import StreamGateway
    except ModuleNotFoundError as error:
        raise BadSettingError(
            f"stream_port is set, but {error.name} is not installed; run: pip install 'penstock[stream]', or set stream_port to "
            "none"
        ) from error
    if config.sasl:
        raise BadSettingError("stream_port is set, but its clients cannot say who they are, as sasl asks; set one of them only")
    streams = await Streams.start(broker, StreamOptions(ttl_s=config.stream_ttl_s), random=random)
    closing.push_async_callback(streams.stop)
    tls = None if config.tls_cert is None or config.tls_key is None else (config.tls_cert, config.tls_key)
    gateway = StreamGateway(streams, host=config.host, port=config.stream_port, drain_timeout_s=config.drain_timeout_s, tls=tls)
    try:
        await gateway.start()
    except OSError as error:
        where = f"{config.host}:{config.stream_port}"
        raise ListenError(
            f"cannot listen on {where}: {error}; choose another --host or --stream-port (0 picks a free one)"
        ) from error
    closing.push_async_callback(gateway.stop)
    return {"stream": gateway.port}
