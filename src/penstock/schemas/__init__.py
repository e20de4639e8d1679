"""Schemas of messages: parsing, canonical text and compatibility of Avro, JSON Schema and Protobuf. It does no I/O."""

from penstock.schemas.compatibility import (
    DEFAULT_LEVEL,
    LEVELS,
    Conflict,
    EarlierSchema,
    find_conflict,
    is_transitive,
)
from penstock.schemas.errors import InvalidSchemaError, MissingLibraryError, UnreadableValueError
from penstock.schemas.incompatibility import Incompatibility
from penstock.schemas.names import record_names
from penstock.schemas.schema import KINDS, Schema, parse_schema
from penstock.schemas.value_check import ValueCheck, check_of
from penstock.schemas.value_codec import FRAME_SIZE, ValueCodec, codec_of, framed_value, split_frame, whole_avro_text

__all__ = [
    "DEFAULT_LEVEL",
    "FRAME_SIZE",
    "KINDS",
    "LEVELS",
    "Conflict",
    "EarlierSchema",
    "Incompatibility",
    "InvalidSchemaError",
    "MissingLibraryError",
    "Schema",
    "UnreadableValueError",
    "ValueCheck",
    "ValueCodec",
    "check_of",
    "codec_of",
    "find_conflict",
    "framed_value",
    "is_transitive",
    "parse_schema",
    "record_names",
    "split_frame",
    "whole_avro_text",
]
