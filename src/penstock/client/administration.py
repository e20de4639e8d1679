"""Topics, groups and pipelines of a cluster, as coroutines over the admin API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from penstock.client.admin_api import AdminRefusedError
from penstock.client.messages import Start
from penstock.client.positions import position_of
from penstock.client.session import Session
from penstock.client.units import topic_setting
from penstock.client.views import ConfigEntry, Group, GroupDetail, OffsetMove, OffsetMoves, Partition, Partitions, Pipeline, Topic
from penstock.kafka.client import EARLIEST, LATEST

EXISTS: Final = "TOPIC_EXISTS"


class AsyncTopics:
    """The topics of a cluster."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(self, *, search: str = "", internal: bool = False) -> list[Topic]:
        """Return topics by name: those with `search` in their names, internal ones only if asked for."""
        return await self._session.get_list(f"/topics?search={quote(search)}&internal={str(internal).lower()}", Topic)

    async def describe(self, name: str) -> Topic:
        """Return one topic."""
        return await self._session.get(f"/topics/{quote(name, safe='')}", Topic)

    async def partitions(self, name: str) -> Partitions:
        """Return the partitions of a topic with their offsets."""
        return await self._session.get_list(f"/topics/{quote(name, safe='')}/partitions", Partition)

    async def config(self, name: str) -> dict[str, ConfigEntry]:
        """Return the configuration of a topic, by key."""
        page = await self._session.call("GET", f"/topics/{quote(name, safe='')}/config")
        return {entry.name: entry for entry in msgspec.convert(page["items"], list[ConfigEntry])}

    async def create(
        self, name: str, *, partitions: int | None = None, config: Mapping[str, object] | None = None, exist_ok: bool = False
    ) -> Topic:
        """Create a topic. Durations and sizes in `config` may be written as `"7d"` and `"10GiB"`. With `exist_ok`, a topic that
        exists is left as it is."""
        settings = {key: _setting(key, value) for key, value in (config or {}).items()}
        body = {"name": name, "partitions": partitions, "config": settings}
        try:
            await self._session.call("POST", "/topics", body)
        except AdminRefusedError as error:
            if not exist_ok or error.reason != EXISTS:
                raise
        return await self.describe(name)

    async def alter(
        self, name: str, set: Mapping[str, object] | None = None, unset: Iterable[str] = ()
    ) -> dict[str, ConfigEntry]:
        """Set some keys of a topic's configuration and put others back to their defaults, all or nothing."""
        body = {"set": {key: _setting(key, value) for key, value in (set or {}).items()}, "unset": [*unset]}
        await self._session.call("PATCH", f"/topics/{quote(name, safe='')}/config", body)
        return await self.config(name)

    async def add_partitions(self, name: str, total: int) -> Topic:
        """Give a topic more partitions. Keys go to other partitions from then on."""
        await self._session.call("POST", f"/topics/{quote(name, safe='')}/partitions", {"total": total})
        return await self.describe(name)

    async def trim(self, name: str, before: Mapping[int, int]) -> dict[int, int]:
        """Delete the messages before an offset of each partition. Returns where the partitions start now."""
        body = {"offsets": {str(number): offset for number, offset in before.items()}}
        result = await self._session.call("POST", f"/topics/{quote(name, safe='')}/trim", body)
        return {int(number): start for number, start in result["starts"].items()}

    async def delete(self, name: str) -> None:
        """Delete a topic with all its messages."""
        await self._session.call("DELETE", f"/topics/{quote(name, safe='')}")


class AsyncGroups:
    """The consumers of a cluster: Kafka's groups, YT consumers and durable consumers of streams."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(self, *, search: str = "") -> list[Group]:
        """Return groups by name: those with `search` in their names."""
        return await self._session.get_list(f"/consumers?search={quote(search)}", Group)

    async def describe(self, name: str) -> GroupDetail:
        """Return a group with its members and every committed offset."""
        path = f"/consumers/{quote(name, safe='')}"
        detail = await self._session.call("GET", path)
        while len(detail["positions"]) < detail["position_count"]:
            more = (await self._session.call("GET", f"{path}?offset={len(detail['positions'])}"))["positions"]
            if not more:
                break
            detail["positions"] += more
        return msgspec.convert(detail, GroupDetail)

    async def reset_offsets(
        self, name: str, topic: str, to: Start, *, partitions: Iterable[int] | None = None, dry_run: bool = False
    ) -> OffsetMoves:
        """Set the committed offsets of a group that has no members. Returns what changed, or with `dry_run` what would."""
        offset, time_ms = position_of(to)
        words = {EARLIEST: "earliest", LATEST: "latest"}
        target: dict[str, Any] = {"to": "offset", "value": offset}
        if time_ms is not None:
            target = {"to": words[time_ms]} if time_ms in words else {"to": "time", "value": time_ms}
        body = {"topic": topic, "partitions": None if partitions is None else [*partitions], "dry_run": dry_run, **target}
        plan = await self._session.call("POST", f"/consumers/{quote(name, safe='')}/reset", body)
        return msgspec.convert(plan["items"], list[OffsetMove])

    async def delete(self, name: str) -> None:
        """Delete a group that has no members, with its committed offsets."""
        await self._session.call("DELETE", f"/consumers/{quote(name, safe='')}")


class AsyncPipelines:
    """Pipelines that have ever run."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(self, *, search: str = "") -> list[Pipeline]:
        """Return the last report of every pipeline, by name."""
        return await self._session.get_list(f"/pipelines?search={quote(search)}", Pipeline)

    async def describe(self, name: str) -> Pipeline:
        """Return the last report of a pipeline."""
        return await self._session.get(f"/pipelines/{quote(name, safe='')}", Pipeline)


def _setting(name: str, value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else topic_setting(name, str(value))
