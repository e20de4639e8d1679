"""The calls about compatibility levels and modes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from penstock.broker import Operation
from penstock.broker.schema_registry import DEFAULT_CONTEXT, config_of, in_context, mode_of
from penstock.gateway.schema_registry.answers import answer
from penstock.gateway.schema_registry.handlers import RegistryHandlers, flag


class SettingHandlers:
    """/config and /mode, of the registry, of a context and of a subject."""

    def __init__(self, handlers: RegistryHandlers) -> None:
        self._handlers = handlers
        self._registry = handlers.registry

    def routes(self) -> list[tuple[str, str, Callable[[web.Request], Awaitable[web.Response]]]]:
        """Method, path and handler of each call."""
        found: list[tuple[str, str, Callable[[web.Request], Awaitable[web.Response]]]] = []
        for path in ("/config", "/config/{subject}"):
            found += (("GET", path, self.config), ("PUT", path, self.set_config), ("DELETE", path, self.delete_config))
        for path in ("/mode", "/mode/{subject}"):
            found += (("GET", path, self.mode), ("PUT", path, self.set_mode), ("DELETE", path, self.delete_mode))
        return found

    async def config(self, request: web.Request) -> web.Response:
        """GET /config."""
        scope = await self._scope(request, Operation.DESCRIBE)
        state = await self._registry.state()
        config = config_of(state, scope, inherited=scope is None or flag(request, "defaultToGlobal"))
        return answer({name: value for name, value in config.items() if name != "subject"})

    async def set_config(self, request: web.Request) -> web.Response:
        """PUT /config."""
        scope = await self._scope(request, Operation.ALTER_CONFIGS)
        config = await self._registry.set_config(scope, await self._handlers.body(request, dict[str, Any]))
        fields = {name: value for name, value in config.items() if name not in ("subject", "compatibilityLevel")}
        return answer({"compatibility": config.get("compatibilityLevel"), **fields})

    async def delete_config(self, request: web.Request) -> web.Response:
        """DELETE /config: what applies is inherited again."""
        scope = await self._scope(request, Operation.ALTER_CONFIGS)
        config_of(await self._registry.state(), scope, inherited=scope is None)  # raises if nothing is set
        before = await self._registry.set_config(scope, None)
        return answer({name: value for name, value in before.items() if name != "subject"})

    async def mode(self, request: web.Request) -> web.Response:
        """GET /mode."""
        scope = await self._scope(request, Operation.DESCRIBE)
        state = await self._registry.state()
        return answer({"mode": mode_of(state, scope, inherited=scope is None or flag(request, "defaultToGlobal"))})

    async def set_mode(self, request: web.Request) -> web.Response:
        """PUT /mode."""
        scope = await self._scope(request, Operation.ALTER_CONFIGS)
        body = await self._handlers.body(request, dict[str, Any])
        return answer({"mode": await self._registry.set_mode(scope, body.get("mode") or "", force=flag(request, "force"))})

    async def delete_mode(self, request: web.Request) -> web.Response:
        """DELETE /mode: what applies is inherited again."""
        scope = await self._scope(request, Operation.ALTER_CONFIGS)
        mode_of(await self._registry.state(), scope, inherited=scope is None)  # raises if nothing is set
        return answer({"mode": await self._registry.set_mode(scope, None)})

    async def _scope(self, request: web.Request, operation: Operation) -> str | None:
        """The subject or context that a request names; None for the whole registry. Everyone may see what holds for all."""
        if "subject" in request.match_info:
            return await self._handlers.subject(request, operation)
        caller = await self._handlers.caller_of(request)
        if operation is not Operation.DESCRIBE:
            caller.check_global(operation)
        context = request.match_info.get("context", DEFAULT_CONTEXT)
        return None if context == DEFAULT_CONTEXT else in_context(context, "")
