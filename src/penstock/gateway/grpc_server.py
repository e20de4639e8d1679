"""A gRPC server in the node's event loop that no request can stop.

grpcio's own loop decodes the path of a call as UTF-8, and stops the whole listener if that fails. `_RegisteredMethodServer` asks
the library for the calls of each known method, so that the library compares paths as bytes, and answers all others without
decoding their path. If the server stops nevertheless, `GrpcServer` starts another on the same port.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import grpc
from grpc._cython import cygrpc

log = logging.getLogger(__name__)

CHECK_INTERVAL_S: Final = 0.1
UNKNOWN_METHOD: Final = "unknown"
_NEEDED: Final = ("_make_request_call_future", "_request_call", "_request_registered_call")
CAN_MATCH_BYTES: Final = all(hasattr(cygrpc.AioServer, name) for name in _NEEDED)
"""Whether this grpcio has the internals that `_RegisteredMethodServer` uses; without them a stopped listener is restarted."""

Handlers = dict[str, Any]


class _RegisteredMethodServer(cygrpc.AioServer):  # type: ignore[misc] # grpc has no types
    """The library's server, with a task for the calls of each method in place of one that decodes paths."""

    def __init__(self, handlers: Handlers, options: tuple[tuple[str, Any], ...], calls_max: int) -> None:
        self._running_loop = asyncio.get_running_loop()
        super().__init__(self._running_loop, None, (), (), options, None)
        self.add_registered_method_handlers(handlers)
        self._resolver = cygrpc._MethodResolver([], handlers)
        self._calls_max = calls_max
        self._calls: set[asyncio.Task[None]] = set()

    def _make_request_call_future(self, method: bytes | None) -> asyncio.Task[None]:
        return self._running_loop.create_task(self._take_calls(method))

    async def _take_calls(self, method: bytes | None) -> None:
        """Take the calls of a method, or with None those of unknown methods, until the request for the next one fails."""
        loop = self._running_loop
        name = UNKNOWN_METHOD if method is None else method.decode()
        while True:
            call = await (self._request_call() if method is None else self._request_registered_call(method))
            is_over_limit = len(self._calls) >= self._calls_max
            work = cygrpc._handle_rpc(name, self._resolver, (), call, loop, is_over_limit)
            task = loop.create_task(cygrpc._schedule_rpc_coro(work, call, loop, name))
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)


class GrpcServer:
    """Serves methods on one address, and restarts the library's server if that stops. `port` 0 picks a free one."""

    def __init__(
        self,
        *,
        host: str,
        port: int,
        tls: tuple[Path, Path] | None,
        options: Mapping[str, Any],
        calls_max: int,
        matches_bytes: bool = CAN_MATCH_BYTES,
    ) -> None:
        self._host = host
        self.port = port
        self._tls = tls  # certificate and key
        self._options = (*options.items(), ("grpc.so_reuseport", 0))
        self._calls_max = calls_max
        self._matches_bytes = matches_bytes
        self._handlers: Handlers = {}
        self._credentials: Any = None
        self._server: Any = None
        self._restarting: asyncio.Task[None] | None = None
        self.restarts = 0

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Serve the methods of a service. Before `start`."""
        self._handlers.update({f"/{service}/{name}": handler for name, handler in handlers.items()})

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Do nothing: generated code adds every service in this form as well."""

    async def start(self) -> None:
        """Listen. OSError if the address is not free."""
        if self._tls is not None:
            certificate, key = [await asyncio.to_thread(path.read_bytes) for path in self._tls]
            self._credentials = grpc.ssl_server_credentials([(key, certificate)])
        await self._listen()
        self._restarting = asyncio.create_task(self._restart_when_ended(), name="grpc-restart")

    async def stop(self, grace_s: float) -> None:
        """Take no more calls, and wait up to `grace_s` for those in flight."""
        if self._restarting is not None:
            self._restarting.cancel()
            await asyncio.gather(self._restarting, return_exceptions=True)
        if self._server is not None:
            await self._server.shutdown(grace_s)

    async def _listen(self) -> None:
        server = self._make_server()
        host = f"[{self._host}]" if ":" in self._host else self._host
        address = f"{host}:{self.port}".encode()
        try:
            port = (
                server.add_insecure_port(address)
                if self._credentials is None
                else server.add_secure_port(address, self._credentials)
            )
        except RuntimeError:
            port = 0
        if not port:
            raise OSError(errno.EADDRINUSE, "the address is in use, or not of this machine")
        self.port = int(port)
        await server.start()
        self._server = server

    def _make_server(self) -> Any:
        if self._matches_bytes:
            return _RegisteredMethodServer(self._handlers, self._options, self._calls_max)
        return cygrpc.AioServer(
            asyncio.get_running_loop(), None, (_HandlerTable(self._handlers),), (), self._options, self._calls_max
        )

    async def _restart_when_ended(self) -> None:
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            # The library has no event for it: its own wait lasts until the last call of a dead server has ended.
            if self._server.is_running():
                continue
            log.error("the gRPC server on port %d stopped unexpectedly and is restarted", self.port)
            self.restarts += 1
            await self._server.shutdown(None)
            await self._listen_again()

    async def _listen_again(self) -> None:
        while True:
            try:
                return await self._listen()
            except OSError as error:
                log.warning("cannot listen on port %d again, retrying: %s", self.port, error)
                await asyncio.sleep(CHECK_INTERVAL_S)


class _HandlerTable(grpc.GenericRpcHandler):  # type: ignore[misc] # grpc has no types
    """Finds a method's handler by its path."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers

    def service(self, handler_call_details: Any) -> Any:
        return self._handlers.get(handler_call_details.method)
