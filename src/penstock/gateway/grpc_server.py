"""A gRPC server in the node's event loop that no request can stop.

grpcio's own loop decodes the path of a call as UTF-8, and stops the whole listener if that fails. `_RegisteredMethodServer` asks
the library for the calls of each known method, so that the library compares paths as bytes, and answers all others without
decoding their path. If the server stops nevertheless, `GrpcServer` starts another on the same port.

The handlers of a node's role may be replaced by those of the next one: clients stay connected, and calls that begin in between
wait.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import grpc
from grpc._cython import cygrpc

log = logging.getLogger(__name__)

CHECK_INTERVAL_S: Final = 0.1
WAIT_S: Final = 5.0  # of a call for the next handlers
UNKNOWN_METHOD: Final = "unknown"
_NEEDED: Final = ("_make_request_call_future", "_request_call", "_request_registered_call")
CAN_MATCH_BYTES: Final = all(hasattr(cygrpc.AioServer, name) for name in _NEEDED)
"""Whether this grpcio has the internals that `_RegisteredMethodServer` uses; without them a stopped listener is restarted."""

Handlers = dict[str, Any]


class _Serving:
    """Handlers, and the calls in flight that they serve."""

    def __init__(self, handlers: Handlers) -> None:
        self.handlers = handlers
        self.calls: set[asyncio.Task[None]] = set()

    def begin_call(self) -> Any:
        """Count this task as a call until it ends. Returns what the library finds the handler of a method by."""
        call = asyncio.current_task()
        assert call is not None
        self.calls.add(call)
        call.add_done_callback(self.calls.discard)
        return cygrpc._MethodResolver([], self.handlers)


class _Turns:
    """Which handlers serve the calls of a server: one set after another, or none for a while."""

    def __init__(self) -> None:
        self.serving: _Serving | None = None
        self._begun = asyncio.Event()

    def begin(self, handlers: Handlers) -> None:
        """Have these handlers serve all calls that begin from now on."""
        self.serving = _Serving(handlers)
        self._begun.set()

    def end(self) -> set[asyncio.Task[None]]:
        """Have calls wait from now on. Returns those in flight."""
        serving, self.serving = self.serving, None
        self._begun.clear()
        return set() if serving is None else serving.calls

    async def current(self) -> _Serving:
        """The handlers for a call that begins now. TimeoutError if there are none for a while."""
        async with asyncio.timeout(WAIT_S):
            while self.serving is None:
                await self._begun.wait()
        return self.serving

    def handler_of(self, path: str) -> Any:
        """The handler of a method now; None if there is no such method."""
        return None if self.serving is None else self.serving.handlers.get(path)


class _RegisteredMethodServer(cygrpc.AioServer):  # type: ignore[misc] # grpc has no types
    """The library's server, with a task for the calls of each method in place of one that decodes paths."""

    def __init__(self, methods: Iterable[str], turns: _Turns, options: tuple[tuple[str, Any], ...], calls_max: int) -> None:
        self._running_loop = asyncio.get_running_loop()
        super().__init__(self._running_loop, None, (), (), options, None)
        self.add_registered_method_handlers(dict.fromkeys(methods, _BETWEEN))
        self._turns = turns
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
            work = self._serve(name, call, is_over_limit=len(self._calls) >= self._calls_max)
            task = loop.create_task(cygrpc._schedule_rpc_coro(work, call, loop, name))
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)

    async def _serve(self, name: str, call: Any, *, is_over_limit: bool) -> None:
        resolver = cygrpc._MethodResolver([], {name: _BETWEEN})
        if not is_over_limit:
            with suppress(TimeoutError):
                resolver = (await self._turns.current()).begin_call()
        await cygrpc._handle_rpc(name, resolver, (), call, self._running_loop, is_over_limit)


class GrpcServer:
    """Serves methods on one address, and restarts the library's server if that stops. `port` 0 picks a free one. With `is_kept`
    it goes on listening after `stop`, for the handlers of the next `start`, until `close`: `methods` names what these may be."""

    def __init__(
        self,
        *,
        host: str,
        port: int,
        tls: tuple[Path, Path] | None,
        options: Mapping[str, Any],
        calls_max: int,
        methods: Iterable[str] = (),
        matches_bytes: bool = CAN_MATCH_BYTES,
    ) -> None:
        self.host = host
        self.port = port
        self.is_kept = False
        self._tls = tls  # certificate and key
        self._options = (*options.items(), ("grpc.so_reuseport", 0))
        self._calls_max = calls_max
        self._matches_bytes = matches_bytes
        self._methods = set(methods)
        self._next_handlers: Handlers = {}
        self._turns = _Turns()
        self._credentials: Any = None
        self._server: Any = None
        self._restarting: asyncio.Task[None] | None = None
        self.restarts = 0

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Serve the methods of a service from the next `start` on."""
        self._next_handlers.update({f"/{service}/{name}": handler for name, handler in handlers.items()})

    def add_to_all_methods(self, handler: object) -> None:
        """Serve all methods by the same handler from the next `start` on, but those that are added later."""
        self._next_handlers.update(dict.fromkeys(self._methods, handler))

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Do nothing: generated code adds every service in this form as well."""

    async def start(self) -> None:
        """Serve the methods that were added, and listen if this is the first time. OSError if the address is not free."""
        handlers, self._next_handlers = self._next_handlers, {}
        if self._server is None:
            self._methods.update(handlers)
            await self._begin_listening()
        assert handlers.keys() <= self._methods, "the library knows no other methods by now"
        self._turns.begin(handlers)

    async def stop(self, grace_s: float) -> None:
        """Wait up to `grace_s` for the calls in flight, and end those that are left. Calls that begin meanwhile wait for the next
        `start`, or are refused unless the server is kept."""
        if not self.is_kept or not self._matches_bytes:
            await self._shut_down(grace_s)
            return
        calls = self._turns.end()
        if calls and (await asyncio.wait(calls, timeout=grace_s))[1]:
            # The library can end calls only together with the server.
            await self._shut_down(None)
            await self._begin_listening()

    async def close(self) -> None:
        """Stop listening, now if no handlers are served, otherwise with the next `stop`."""
        self.is_kept = False
        if self._turns.serving is None:
            await self._shut_down(None)

    async def _shut_down(self, grace_s: float | None) -> None:
        restarting, self._restarting = self._restarting, None
        if restarting is not None:
            restarting.cancel()
            await asyncio.gather(restarting, return_exceptions=True)
        server, self._server = self._server, None
        if server is not None:
            await server.shutdown(grace_s)
        self._turns.end()

    async def _begin_listening(self) -> None:
        if self._tls is not None:
            certificate, key = [await asyncio.to_thread(path.read_bytes) for path in self._tls]
            self._credentials = grpc.ssl_server_credentials([(key, certificate)])
        await self._listen()
        self._restarting = asyncio.create_task(self._restart_when_ended(), name="grpc-restart")

    async def _listen(self) -> None:
        server = self._make_server()
        host = f"[{self.host}]" if ":" in self.host else self.host
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
            return _RegisteredMethodServer(self._methods, self._turns, self._options, self._calls_max)
        return cygrpc.AioServer(
            asyncio.get_running_loop(), None, (_HandlerTable(self._turns),), (), self._options, self._calls_max
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

    def __init__(self, turns: _Turns) -> None:
        self._turns = turns

    def service(self, handler_call_details: Any) -> Any:
        return self._turns.handler_of(handler_call_details.method)


def refusing(reason: Callable[[], str]) -> Any:
    """A handler for any method that answers with UNAVAILABLE, upon which clients try again, and a reason; it receives nothing."""

    async def refuse(_: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.UNAVAILABLE, reason())

    return grpc.stream_stream_rpc_method_handler(refuse)


_BETWEEN: Final = refusing(lambda: "this node begins or ends to lead; try again in a moment")
