"""Schemas of messages: parsing, canonical text and compatibility of Avro, JSON Schema and Protobuf. It does no I/O."""

from penstock.schemas.compatibility import (
    DEFAULT_LEVEL,
    LEVELS,
    Conflict,
    EarlierSchema,
    find_conflict,
    is_transitive,
)
from penstock.schemas.errors import InvalidSchemaError, MissingLibraryError
from penstock.schemas.incompatibility import Incompatibility
from penstock.schemas.schema import KINDS, Schema, parse_schema

__all__ = [
    "DEFAULT_LEVEL",
    "KINDS",
    "LEVELS",
    "Conflict",
    "EarlierSchema",
    "Incompatibility",
    "InvalidSchemaError",
    "MissingLibraryError",
    "Schema",
    "find_conflict",
    "is_transitive",
    "parse_schema",
]
