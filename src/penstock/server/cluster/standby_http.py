"""The HTTP listener of a standby: health and readiness, and for everything else the address of the node that serves."""

from __future__ import annotations

from collections.abc import Callable
from ssl import SSLContext
from typing import Any

from aiohttp import web

Describe = Callable[[], dict[str, Any]]
"""What /readyz shows: `status` is ready or not, the rest is for people and scripts."""


class StandbyHttp:
    """Listens until this node runs the broker, which brings a listener of its own."""

    def __init__(self, host: str, port: int, describe: Describe, where: Callable[[], str], tls: SSLContext | None) -> None:
        self.port = port
        self._host = host
        self._tls = tls
        self._describe = describe
        self._where = where
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen; raises OSError."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_route("*", "/{path:.*}", self._elsewhere)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self.port, ssl_context=self._tls, shutdown_timeout=1.0)
        try:
            await site.start()
        except OSError:
            await self.stop()
            raise
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _readyz(self, request: web.Request) -> web.Response:
        described = self._describe()
        return web.json_response(described, status=200 if described["status"] == "ready" else 503)

    async def _elsewhere(self, request: web.Request) -> web.Response:
        error = {"code": "standby", "message": f"this node is a standby; {self._where()}"}
        return web.json_response({"error": error}, status=503, headers={"Retry-After": "1"})
