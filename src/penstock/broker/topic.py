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
    """A topic and the tablets of its partitions, by number. `deleting` is set while its data is being deleted."""

    name: str
    id: UUID
    tablets: tuple[int, ...]
    config: TopicConfig
    deleting: bool = False
    replicas: int = 1  # the replication factor that was asked for; the storage group decides how many copies there are

    @property
    def partitions(self) -> int:
        """How many partitions it has."""
        return len(self.tablets)

    def pack(self) -> bytes:
        """The stored form: JSON with a version."""
        fields = {
            "version": VERSION,
            "name": self.name,
            "id": self.id.hex,
            "tablets": self.tablets,
            "config": self.config.own,
            "deleting": self.deleting,
            "replicas": self.replicas,
        }
        return json.dumps(fields).encode()

    @classmethod
    def unpack(cls, raw: bytes) -> Topic:
        """The topic whose stored form is `raw`."""
        fields = json.loads(raw)
        if fields["version"] > VERSION:
            raise ConfigError(f"topic {fields['name']!r} has format {fields['version']}; upgrade Penstock")
        config = TopicConfig(fields["config"])
        tablets = tuple(fields["tablets"])
        return cls(fields["name"], UUID(hex=fields["id"]), tablets, config, fields["deleting"], fields.get("replicas", 1))


def check_name(name: str) -> None:
    """Raise InvalidTopicNameError if the name is invalid."""
    if name in ("", ".", "..") or len(name) > NAME_SIZE_MAX or not _NAME.fullmatch(name):
        raise InvalidTopicNameError(
            f"{name!r} cannot name a topic: use letters, digits, '.', '_' and '-', at most {NAME_SIZE_MAX} of them"
        )
