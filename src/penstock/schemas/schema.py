"""What all kinds of schemas have in common, and the parser of each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from penstock.schemas.avro_schema import AvroSchema
from penstock.schemas.errors import InvalidSchemaError, MissingLibraryError
from penstock.schemas.incompatibility import Incompatibility


class Schema(Protocol):
    """A parsed schema."""

    @property
    def kind(self) -> str:
        """AVRO, JSON or PROTOBUF."""
        ...

    def text(self, *, normalize: bool = False) -> str:
        """The canonical text, by which schemas are told apart."""
        ...

    def serialized(self) -> str:
        """The form that clients ask for by `format=serialized`: the text, but of Protobuf a descriptor in base64."""
        ...

    def problems_reading(self, writer: Any) -> list[Incompatibility]:
        """Everything that keeps this schema from reading data of another of its kind."""
        ...


def parse_schema(kind: str, text: str, references: Mapping[str, Schema]) -> Schema:
    """Parse the text of a schema; references are by the name that the text has for them. InvalidSchemaError if it is not valid,
    MissingLibraryError if this installation cannot read schemas of its kind."""
    parse = _PARSERS.get(kind)
    if parse is None:
        raise InvalidSchemaError(f"there are no schemas of type {kind!r}; types are {', '.join(KINDS)}")
    for name, schema in references.items():
        if schema.kind != kind:
            raise InvalidSchemaError(f"reference {name!r} is of type {schema.kind}, and the schema of type {kind}")
    try:
        return parse(text, references)
    except RecursionError:
        raise InvalidSchemaError("the schema is nested too deeply; split it by references") from None
    except ModuleNotFoundError as error:
        raise MissingLibraryError(f"schemas of type {kind} need {error.name}; run: pip install 'penstock[schemas]'") from error


def _parse_avro(text: str, references: Mapping[str, Any]) -> Schema:
    return AvroSchema.parse(text, references)


def _parse_json(text: str, references: Mapping[str, Any]) -> Schema:
    from penstock.schemas.json_schema import JsonSchema

    return JsonSchema.parse(text, references)


def _parse_protobuf(text: str, references: Mapping[str, Any]) -> Schema:
    from penstock.schemas.protobuf_schema import ProtobufSchema

    return ProtobufSchema.parse(text, references)


_PARSERS: Final[dict[str, Callable[[str, Mapping[str, Any]], Schema]]] = {
    "AVRO": _parse_avro,
    "JSON": _parse_json,
    "PROTOBUF": _parse_protobuf,
}
KINDS: Final = tuple(_PARSERS)
