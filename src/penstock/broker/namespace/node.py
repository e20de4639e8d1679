"""A node of the namespace: what it is, where, and the attributes that were set on it; stored as JSON with a version."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from uuid import UUID

from penstock.broker.topic import NAME_SIZE_MAX
from penstock.core.errors import InvalidRequestError
from penstock.core.format_version import check_version

VERSION = 1
PATH_SIZE_MAX = 1000
_PATH = re.compile(r"/(/[^/@&*#\[\]{}<>\0-\x1f]+)+")
_NOT_IN_TOPIC_NAME = re.compile(r"[^a-zA-Z0-9._-]")


class Kind(Enum):
    """What a node is."""

    FOLDER = "map_node"
    QUEUE = "queue"
    CONSUMER = "consumer"
    PRODUCER = "producer"
    STATIC = "static_table"


class MountState(Enum):
    """Whether a table takes reads and writes."""

    UNMOUNTED = "unmounted"
    MOUNTED = "mounted"
    FROZEN = "frozen"


# Object ids of the seed carry a type in the low half of their third part.
_TYPES = {Kind.FOLDER: 303, Kind.QUEUE: 401, Kind.CONSUMER: 401, Kind.PRODUCER: 401, Kind.STATIC: 401}


@dataclass(frozen=True, slots=True)
class Node:
    """A node. Values of attributes are JSON, and most are for gateways alone. A queue has a topic, by name until it is made and
    by id from then on; a static table has the name of the topic its rows are from. `is_going` is set while a node and its data
    are being removed."""

    path: str
    id: str
    kind: Kind
    created_ms: int = 0
    changed_ms: int = 0
    attributes: Mapping[str, bytes] = field(default_factory=dict)
    mount_state: MountState = MountState.UNMOUNTED
    topic: str | None = None
    topic_id: UUID | None = None
    is_going: bool = False

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]

    def pack(self) -> bytes:
        """The stored form."""
        fields = {
            "version": VERSION,
            "path": self.path,
            "id": self.id,
            "kind": self.kind.value,
            "created_ms": self.created_ms,
            "changed_ms": self.changed_ms,
            "attributes": {name: b64encode(value).decode() for name, value in self.attributes.items()},
            "mount_state": self.mount_state.value,
            "topic": self.topic,
            "topic_id": None if self.topic_id is None else self.topic_id.hex,
            "is_going": self.is_going,
        }
        return json.dumps(fields).encode()

    @classmethod
    def unpack(cls, raw: bytes) -> Node:
        """The node whose stored form is `raw`."""
        fields = json.loads(raw)
        check_version(fields["version"], VERSION, f"node {fields.get('path')!r}")
        return cls(
            fields["path"],
            fields["id"],
            Kind(fields["kind"]),
            fields["created_ms"],
            fields["changed_ms"],
            {name: b64decode(value) for name, value in fields["attributes"].items()},
            MountState(fields["mount_state"]),
            fields["topic"],
            None if fields["topic_id"] is None else UUID(hex=fields["topic_id"]),
            fields["is_going"],
        )


def new_id(kind: Kind, random: Random) -> str:
    """An object id in the form of the seed."""
    return object_id(_TYPES[kind], random.getrandbits(128))


def object_id(type_code: int, number: int) -> str:
    """The id of an object of this type, out of 128 bits."""
    parts = [number >> 96 & 0xFFFFFFFF, number >> 64 & 0xFFFFFFFF, number >> 32 & 0xFFFF0000 | type_code, number & 0xFFFFFFFF]
    return "-".join(f"{part:x}" for part in parts)


def check_path(path: str) -> None:
    """InvalidRequestError unless a node can be here."""
    if len(path.encode()) > PATH_SIZE_MAX or not _PATH.fullmatch(path):
        raise InvalidRequestError(
            f"{path!r} cannot be the path of a node: it begins with //, its parts are not empty and have none of "
            f"/ @ & * # [ ] {{ }} < >, and it has at most {PATH_SIZE_MAX} bytes"
        )


def parent_of(path: str) -> str:
    """The path of the folder that a node is in; "/" is the root."""
    return path.rpartition("/")[0].rstrip("/") or "/"


def topic_name_of(path: str) -> str:
    """The name that the topic of a queue gets, if it is free."""
    return _NOT_IN_TOPIC_NAME.sub("_", path[2:].replace("/", "."))[: NAME_SIZE_MAX - 10]
