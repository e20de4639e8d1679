"""A topic as the broker keeps it, and what names topics may have."""

from __future__ import annotations

import json
import re
from typing import NamedTuple
from uuid import UUID

from penstock.broker.errors import InvalidTopicNameError
from penstock.broker.topic_config import TopicConfig
from penstock.core.errors import ConfigError

VERSION = 1
NAME_SIZE_MAX = 249
_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class Topic(NamedTuple):
    """A topic and the tablets of its partitions, by number. `deleting` is set while its data is being deleted. `groups` are the
    storage groups of the tablets, by number as well: None is the first one, and so is all of an empty tuple."""

    name: str
    id: UUID
    tablets: tuple[int, ...]
    config: TopicConfig
    deleting: bool = False
    replicas: int = 1  # the replication factor that was asked for; the storage group decides how many copies there are
    groups: tuple[int | None, ...] = ()

    @property
    def partitions(self) -> int:
        """How many partitions it has."""
        return len(self.tablets)

    def by_tablet(self) -> dict[int, set[int]]:
        """The numbers of the partitions of each tablet."""
        numbers: dict[int, set[int]] = {}
        for number, tablet_id in enumerate(self.tablets):
            numbers.setdefault(tablet_id, set()).add(number)
        return numbers

    def group_of(self, tablet_id: int) -> int | None:
        """The storage group of a tablet; None if it is the first one."""
        return self.groups[self.tablets.index(tablet_id)] if self.groups else None

    def pack(self) -> bytes:
        """The stored form: JSON with a version."""
        fields: dict[str, object] = {
            "version": VERSION,
            "name": self.name,
            "id": self.id.hex,
            "tablets": self.tablets,
            "config": self.config.own,
            "deleting": self.deleting,
            "replicas": self.replicas,
        }
        if self.groups:
            fields["groups"] = self.groups
        return json.dumps(fields).encode()

    @classmethod
    def unpack(cls, raw: bytes) -> Topic:
        """The topic whose stored form is `raw`."""
        fields = json.loads(raw)
        if fields["version"] > VERSION:
            raise ConfigError(f"topic {fields['name']!r} has format {fields['version']}; upgrade Penstock")
        config = TopicConfig(fields["config"])
        return cls(
            fields["name"],
            UUID(hex=fields["id"]),
            tuple(fields["tablets"]),
            config,
            fields["deleting"],
            fields.get("replicas", 1),
            tuple(fields.get("groups", ())),
        )


def check_name(name: str) -> None:
    """Raise InvalidTopicNameError if the name is invalid."""
    if name in ("", ".", "..") or len(name) > NAME_SIZE_MAX or not _NAME.fullmatch(name):
        raise InvalidTopicNameError(
            f"{name!r} cannot name a topic: use letters, digits, '.', '_' and '-', at most {NAME_SIZE_MAX} of them"
        )
