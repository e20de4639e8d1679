"""Whether data written with one Avro schema can be read with another, by Avro's rules of schema resolution.

Records, enums and fixed types match by their unqualified name or by an alias of the reader, as the specification and Avro's
library for Java have it. Every pair of types is looked at once, so that schemas which contain themselves end, and the work is
bounded.
"""

from __future__ import annotations

from typing import Final

from penstock.schemas.avro_parser import type_name
from penstock.schemas.avro_types import NO_DEFAULT, Array, AvroType, Enum, Field, Fixed, Map, Named, Record, Union
from penstock.schemas.errors import InvalidSchemaError
from penstock.schemas.incompatibility import Incompatibility

PAIRS_MAX: Final = 200_000  # of types that one comparison looks at
_READS: Final = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "string": {"bytes"},
    "bytes": {"string"},
}


def resolve(reader: AvroType, writer: AvroType) -> list[Incompatibility]:
    """Everything that keeps `reader` from reading what was written with `writer`; paths are those of the reader's schema."""
    return _Resolution().compare(reader, writer, "")


class _Resolution:
    def __init__(self) -> None:
        self._found: dict[tuple[int, int], list[Incompatibility]] = {}

    def compare(self, reader: AvroType, writer: AvroType, path: str) -> list[Incompatibility]:
        pair = (id(reader), id(writer))
        known = self._found.get(pair)
        if known is not None:
            return known
        if len(self._found) >= PAIRS_MAX:
            raise InvalidSchemaError(f"comparing the schemas takes more than {PAIRS_MAX} steps; make their unions smaller")
        self._found[pair] = []  # a type that contains itself fits if all else does
        self._found[pair] = found = self._compare(reader, writer, path)
        return found

    def _compare(self, reader: AvroType, writer: AvroType, path: str) -> list[Incompatibility]:
        if isinstance(writer, Union):
            return self._from_union(reader, writer, path)
        if isinstance(reader, Union):
            if any(not self.compare(branch, writer, f"{path}/{number}") for number, branch in enumerate(reader.branches)):
                return []
            return [_missing_branch(writer, path)]
        if reader.kind != writer.kind and {reader.kind, writer.kind} != {"record", "error"}:
            return [] if writer.kind in _READS.get(reader.kind, ()) else [_mismatch(reader, writer, path)]
        if isinstance(reader, Array) and isinstance(writer, Array):
            return self.compare(reader.items, writer.items, path + "/items")
        if isinstance(reader, Map) and isinstance(writer, Map):
            return self.compare(reader.values, writer.values, path + "/values")
        if isinstance(reader, Named) and isinstance(writer, Named) and not _is_same_name(reader, writer):
            return [
                Incompatibility(
                    "NAME_MISMATCH",
                    f"{path}/name",
                    f"the new schema has {reader.kind} {reader.name!r} where the old one has {writer.name!r}",
                    f"expected: {writer.name}",
                )
            ]
        if isinstance(reader, Record) and isinstance(writer, Record):
            return self._records(reader, writer, path)
        if isinstance(reader, Enum) and isinstance(writer, Enum):
            return _enums(reader, writer, path)
        if isinstance(reader, Fixed) and isinstance(writer, Fixed) and reader.size != writer.size:
            description = f"fixed type {reader.name!r} has {reader.size} bytes, and {writer.size} in the old schema"
            return [Incompatibility("FIXED_SIZE_MISMATCH", f"{path}/size", description, f"expected: {writer.size}")]
        return []

    def _from_union(self, reader: AvroType, writer: Union, path: str) -> list[Incompatibility]:
        """Each branch of what was written must be readable."""
        found: list[Incompatibility] = []
        for branch in writer.branches:
            problems = self.compare(reader, branch, path)
            if problems and isinstance(reader, Union):
                found.append(_missing_branch(branch, path))
            else:
                found += problems
        return found

    def _records(self, reader: Record, writer: Record, path: str) -> list[Incompatibility]:
        written = {field.name: field for field in writer.fields}
        found: list[Incompatibility] = []
        for number, field in enumerate(reader.fields):
            at = f"{path}/fields/{number}"
            source = next((written[name] for name in (field.name, *field.aliases) if name in written), None)
            if source is not None:
                found += self.compare(field.type, source.type, at + "/type")
            elif not _has_default(field):
                description = (
                    f"field {field.name!r} of {reader.name!r} has no default in the new schema, and the old one lacks it; "
                    f"give it a default"
                )
                found.append(Incompatibility("READER_FIELD_MISSING_DEFAULT_VALUE", at, description, field.name))
        return found


def _has_default(field: Field) -> bool:
    return field.default is not NO_DEFAULT or (isinstance(field.type, Enum) and field.type.default is not None)


def _is_same_name(reader: Named, writer: Named) -> bool:
    return reader.short_name == writer.short_name or writer.name in reader.aliases


def _enums(reader: Enum, writer: Enum, path: str) -> list[Incompatibility]:
    missing = [symbol for symbol in writer.symbols if symbol not in set(reader.symbols)]
    if not missing or reader.default is not None:
        return []
    description = f"enum {reader.name!r} of the new schema lacks the symbols {', '.join(missing)} and has no default"
    return [Incompatibility("MISSING_ENUM_SYMBOLS", f"{path}/symbols", description, f"[{', '.join(missing)}]")]


def _missing_branch(writer: AvroType, path: str) -> Incompatibility:
    description = f"the union of the new schema has no branch that reads {type_name(writer)}, which the old one writes"
    return Incompatibility(
        "MISSING_UNION_BRANCH", path or "/", description, f"reader union lacking writer type: {type_name(writer)}"
    )


def _mismatch(reader: AvroType, writer: AvroType, path: str) -> Incompatibility:
    wanted, given = type_name(reader), type_name(writer)
    description = f"the type is {wanted} in the new schema and {given} in the old one, which it does not read"
    additional = f"reader type: {reader.kind.upper()} not compatible with writer type: {writer.kind.upper()}"
    return Incompatibility("TYPE_MISMATCH", path or "/", description, additional)
