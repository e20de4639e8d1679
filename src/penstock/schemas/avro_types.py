"""The types of an Avro schema, with names resolved to full names. A type that names itself is a cycle of these objects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NO_DEFAULT: Final = object()

Props = dict[str, Any]


@dataclass(slots=True, eq=False)
class Primitive:
    """A type without a name, or one with properties such as a logical type."""

    kind: str
    props: Props = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Array:
    """A list of items."""

    items: AvroType
    props: Props = field(default_factory=dict)
    kind: str = "array"


@dataclass(slots=True, eq=False)
class Map:
    """Values by string."""

    values: AvroType
    props: Props = field(default_factory=dict)
    kind: str = "map"


@dataclass(slots=True, eq=False)
class Union:
    """One of several types."""

    branches: list[AvroType]
    kind: str = "union"


@dataclass(slots=True, eq=False)
class Field:
    """A field of a record."""

    name: str
    type: AvroType
    doc: str | None
    default: Any
    order: str
    aliases: list[str]
    props: Props


@dataclass(slots=True, eq=False)
class Named:
    """What records, enums and fixed types share."""

    kind: str
    name: str  # with its namespace
    aliases: list[str]
    doc: str | None
    props: Props

    @property
    def short_name(self) -> str:
        """The name without its namespace."""
        return self.name.rpartition(".")[2]

    @property
    def namespace(self) -> str:
        """The namespace; empty if there is none."""
        return self.name.rpartition(".")[0]


@dataclass(slots=True, eq=False)
class Record(Named):
    """Fields by name."""

    fields: list[Field] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Enum(Named):
    """One of some symbols."""

    symbols: list[str] = field(default_factory=list)
    default: str | None = None


@dataclass(slots=True, eq=False)
class Fixed(Named):
    """A number of bytes."""

    size: int = 0


AvroType = Primitive | Array | Map | Union | Record | Enum | Fixed
