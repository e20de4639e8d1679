"""What is set for single groups, in place of the broker's defaults. A group need not be there to have settings.

"c" | group        JSON: version, and the settings by name
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from penstock.broker.errors import InvalidConfigError
from penstock.broker.groups.consumer_group import ConsumerGroupOptions
from penstock.core.errors import ConfigError
from penstock.tablet import DeleteRange, KvTablet, Request, Write

log = logging.getLogger(__name__)

VERSION = 1
PREFIX = b"c"
TIMEOUT_MS_MAX = 1_800_000


class GroupConfigKey(NamedTuple):
    """A setting of groups: the option it maps to, its minimum, and its description."""

    option: str
    low: int
    doc: str


GROUP_CONFIG_KEYS: Final = {
    "consumer.heartbeat.interval.ms": GroupConfigKey(
        "heartbeat_interval_ms", 10, "how often members report whose partitions the broker assigns"
    ),
    "consumer.session.timeout.ms": GroupConfigKey(
        "session_timeout_ms", 100, "such a member that is silent for so long is removed"
    ),
}


class GroupConfigs:
    """The settings of all groups."""

    def __init__(self, tablet: KvTablet, defaults: ConsumerGroupOptions) -> None:
        self._tablet = tablet
        self._defaults = defaults
        self.changing = asyncio.Lock()  # held from reading the settings to storing them
        self._own: dict[str, dict[str, str]] = {}
        self._options: dict[str, ConsumerGroupOptions] = {}
        for key in tablet.keys(PREFIX, bytes([PREFIX[0] + 1])):
            self._take(key[len(PREFIX) :].decode(), unpack_config(tablet.head(key) or b""))

    def names(self) -> list[str]:
        """The groups for which something is set."""
        return sorted(self._own)

    def own(self, name: str) -> dict[str, str]:
        """What is set for a group."""
        return dict(self._own.get(name, {}))

    def options(self, name: str) -> ConsumerGroupOptions:
        """How a group behaves: as is set for it, otherwise as all do."""
        return self._options.get(name, self._defaults)

    def check(self, own: Mapping[str, str]) -> ConsumerGroupOptions:
        """Returns the options that settings give. InvalidConfigError if they are invalid."""
        changes: dict[str, int] = {}
        for name, value in own.items():
            key = GROUP_CONFIG_KEYS.get(name)
            if key is None:
                raise InvalidConfigError(f"unknown group configuration {name!r}; there are {', '.join(GROUP_CONFIG_KEYS)}")
            if not (value.isascii() and value.isdigit() and key.low <= int(value) <= TIMEOUT_MS_MAX):
                raise InvalidConfigError(f"{name}: {value!r} is not a whole number within {key.low}..{TIMEOUT_MS_MAX}")
            changes[key.option] = int(value)
        options = replace(self._defaults, **changes)  # type: ignore[arg-type] # only options that are numbers have keys
        if options.heartbeat_interval_ms >= options.session_timeout_ms:
            raise InvalidConfigError(
                f"members would report every {options.heartbeat_interval_ms} ms and be removed after "
                f"{options.session_timeout_ms} ms of silence; the first must be less"
            )
        return options

    async def set(self, name: str, own: Mapping[str, str]) -> None:
        """Set all that is set for a group; durable when this returns."""
        self.check(own)
        key = PREFIX + name.encode()
        if own:
            await self._tablet.execute(Request((Write(key, b"", head=pack_config(own)),)))
        else:
            await self._tablet.execute(Request((DeleteRange(key, key + b"\0"),), makes_room=True))
        self._take(name, dict(own))

    def _take(self, name: str, own: dict[str, str]) -> None:
        if own:
            self._own[name] = own
            try:
                self._options[name] = self.check(own)
            except InvalidConfigError as error:
                # It was taken with other defaults of the broker.
                log.warning("the settings of group %s do not fit those of the broker and are left out: %s", name, error)
        else:
            self._own.pop(name, None)
            self._options.pop(name, None)


def pack_config(own: Mapping[str, str]) -> bytes:
    """The stored form of what is set for a group."""
    return json.dumps({"version": VERSION, "config": dict(own)}, sort_keys=True).encode()


def unpack_config(raw: bytes) -> dict[str, str]:
    """What is set for a group, of its stored form."""
    fields = json.loads(raw)
    if fields["version"] > VERSION:
        raise ConfigError(f"the settings of a group have format {fields['version']}; upgrade Penstock")
    config: dict[str, str] = fields["config"]
    return config
