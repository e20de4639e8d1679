"""The port that a node serves HTTP on. One listener after another may use it: who connects in between waits for the next."""

from __future__ import annotations

import asyncio
import socket
from ssl import SSLContext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp import web

BACKLOG = 128


class HttpPort:
    """Sockets that listen from the first `serve` on until `close`. `port` 0 picks a free one."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self._sockets: list[socket.socket] = []

    async def serve(self, runner: web.BaseRunner, tls: SSLContext | None) -> None:
        """Set a listener up, and have it accept connections until it is cleaned up. OSError if the address is in use or not
        local; then it is cleaned up already."""
        from aiohttp import web

        await runner.setup()
        try:
            if not self._sockets:
                await self._bind()
            for bound in self._sockets:
                # The listener closes what it is given; the socket itself goes on listening.
                await web.SockSite(runner, bound.dup(), ssl_context=tls, backlog=BACKLOG).start()
        except BaseException:
            await runner.cleanup()
            raise

    def close(self) -> None:
        """Refuse connections from now on."""
        for bound in self._sockets:
            bound.close()
        self._sockets.clear()

    async def _bind(self) -> None:
        """Listen at every address that the name of the host stands for."""
        found = await asyncio.get_running_loop().getaddrinfo(
            self.host or None, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                bound = socket.create_server((address[0], self.port), family=family, backlog=BACKLOG)
                self._sockets.append(bound)
                self.port = bound.getsockname()[1]
        except OSError:
            self.close()
            raise
