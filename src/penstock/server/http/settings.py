"""/settings: what the node was told, with its secrets masked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from penstock.broker import Operation
from penstock.server.config import SETTINGS, NodeConfig, Setting
from penstock.server.http.route import Call, Nothing, Page, Paging, Resource, Route, Shown
from penstock.server.http.served import Served

MASK: Final = "********"
_IN_URL: Final = re.compile(r"(?<=://)[^@/\s]+(?=@)")


class SettingShown(Shown, frozen=True):
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

    def __init__(self, served: Served) -> None:
        self._served = served

    def routes(self) -> list[Route]:
        """What is answered."""
        return [Route("GET", "/settings", self.list_settings, "the settings of this node")]

    async def list_settings(self, call: Call[Nothing, Paging, Nothing]) -> Page[SettingShown]:
        """GET /settings."""
        call.caller.check_cluster(Operation.DESCRIBE_CONFIGS)
        part = call.query.search.lower()
        found = [setting for key, setting in SETTINGS.items() if part in key]
        # What was left to the data directory is shown as it was made.
        made = {"erasure": self._served.erasure, "node_id": self._served.node_id}
        return Page([_shown(setting, self._served.config, made) for setting in call.query.page(found)], len(found))


def _shown(setting: Setting, config: NodeConfig, made: Mapping[str, object]) -> SettingShown:
    value = getattr(config, setting.key)
    return SettingShown(
        key=setting.key,
        value=_text(setting, made.get(setting.key, value)),
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
