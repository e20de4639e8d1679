"""/settings: the settings of the node, with its secrets masked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from penstock.broker import Operation
from penstock.server.config import NodeConfig
from penstock.server.http.node_context import NodeContext
from penstock.server.http.route import Call, Nothing, Page, Paging, Resource, ResponseModel, Route
from penstock.server.setting import Setting
from penstock.server.settings import SETTINGS

MASK: Final = "********"
_IN_URL: Final = re.compile(r"(?<=://)[^@/\s]+(?=@)")


class SettingView(ResponseModel, frozen=True):
    """One setting, as text; null if it is not set. What is secret is masked."""

    key: str
    value: str | None
    default: str
    is_default: bool
    takes: str
    doc: str
    option: str | None
    variable: str


class SettingResource(Resource):
    """Settings of the node."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context

    def routes(self) -> list[Route]:
        """The routes of this resource."""
        return [Route("GET", "/settings", self.list_settings, "the settings of this node")]

    async def list_settings(self, call: Call[Nothing, Paging, Nothing]) -> Page[SettingView]:
        """GET /settings."""
        call.caller.check_cluster(Operation.DESCRIBE_CONFIGS)
        part = call.query.search.lower()
        settings = [setting for key, setting in SETTINGS.items() if part in key]
        # A setting that was left to the data directory is shown as it is stored there.
        stored = {"erasure": self._context.erasure, "node_id": self._context.node_id}
        return Page([_view(setting, self._context.config, stored) for setting in call.query.page(settings)], len(settings))


def _view(setting: Setting, config: NodeConfig, stored: Mapping[str, object]) -> SettingView:
    value = getattr(config, setting.key)
    return SettingView(
        key=setting.key,
        value=_text(setting, stored.get(setting.key, value)),
        default=setting.default,
        is_default=value == getattr(NodeConfig(), setting.key),
        takes=setting.kind.allowed,
        doc=setting.doc,
        option=None if setting.is_secret else setting.option,
        variable=setting.variable,
    )


def _text(setting: Setting, value: object) -> str | None:
    if value is None:
        return None
    if setting.is_secret:
        return MASK
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_IN_URL.sub(MASK, str(address))}" for name, address in value.items())
    return _IN_URL.sub(MASK, str(value))
