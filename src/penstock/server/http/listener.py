"""The HTTP listener of a node: the admin API, and applications mounted beside it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from ssl import SSLContext
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from penstock.gateway.http_guard import own_hosts
from penstock.gateway.http_port import HttpPort
from penstock.server.http.api import api_resources
from penstock.server.http.app import Mount, make_app
from penstock.server.http.node_context import NodeContext
from penstock.server.http.route import SHUTDOWN

KEEP_ALIVE_S: Final = 30.0
LINE_BYTES_MAX: Final = 32 << 10  # of the address, and of a header: a cursor and Last-Event-ID have their place there


class _OnlyOwnFaults(logging.Filter):
    """Drops log records of malformed requests and disconnects: anyone who can connect could fill the log with them."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError | ConnectionError))


def _quiet_logger() -> logging.Logger:
    logger = logging.getLogger("penstock.server.http.protocol")
    if not logger.filters:
        logger.addFilter(_OnlyOwnFaults())
    return logger


class HttpListener:
    """Make it, `start` it, `stop` it."""

    def __init__(
        self,
        context: NodeContext,
        *,
        port: HttpPort,
        advertised_host: str,
        mounts: Sequence[Mount] = (),
        tls: SSLContext | None,
    ) -> None:
        self._context = context
        self._port = port
        self._tls = tls
        self._shutdown = asyncio.Event()
        self._resources = api_resources(context)
        routes = [route for resource in self._resources for route in resource.routes()]
        app = make_app(context, routes, own_hosts(port.host, advertised_host), mounts)
        app[SHUTDOWN] = self._shutdown
        drain_s = context.config.drain_timeout_s
        # Handlers are not cancelled when their client disconnects: a change must not be left half done.
        self._runner = web.AppRunner(
            app,
            access_log=None,
            auto_decompress=False,
            logger=_quiet_logger(),
            keepalive_timeout=KEEP_ALIVE_S,
            max_line_size=LINE_BYTES_MAX,
            max_field_size=LINE_BYTES_MAX,
            shutdown_timeout=drain_s,
        )

    def connections(self) -> int:
        """How many clients are connected."""
        server = self._runner.server
        return 0 if server is None else len(server.connections)

    async def start(self) -> None:
        """Start listening. Raises OSError if the address is in use or not local."""
        await self._port.serve(self._runner, self._tls)
        self._context.figures.refresh()  # so that the first request does not wait for it

    async def stop(self) -> None:
        """Accept no more requests, end streams, and finish the other requests."""
        self._shutdown.set()
        await self._runner.cleanup()
        await self._context.figures.close()
        for resource in self._resources:
            await resource.close()
