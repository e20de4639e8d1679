"""Schemas of tables."""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.gateway.yt.errors import GENERIC, SCHEMA_VIOLATION, YtError

TIMESTAMP, WEIGHT = "$timestamp", "$cumulative_data_weight"
TABLET_INDEX, ROW_INDEX = "$tablet_index", "$row_index"
SEQUENCE_NUMBER = "$sequence_number"
SYSTEM_COLUMNS = frozenset({TIMESTAMP, WEIGHT})

STRINGS = frozenset({"string", "utf8", "json", "uuid"})
SIGNED = {"int64": 64, "int32": 32, "int16": 16, "int8": 8, "interval": 64, "interval64": 64, "date32": 32}
UNSIGNED = {"uint64": 64, "uint32": 32, "uint16": 16, "uint8": 8, "date": 32, "datetime": 64, "timestamp": 64}
DOUBLES = frozenset({"double", "float"})
ANY = frozenset({"any", "yson", "null", "void"})
_V3_NAMES = {"bool": "boolean", "yson": "any"}


class Column(NamedTuple):
    """A column of a table."""

    name: str
    type: str
    required: bool = False
    is_key: bool = False


class Schema(NamedTuple):
    """The columns of a table, in order."""

    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that writers fill."""
        return tuple(column.name for column in self.columns if column.name not in SYSTEM_COLUMNS)

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns it is sorted by."""
        return tuple(column.name for column in self.columns if column.is_key)

    def has(self, name: str) -> bool:
        """Whether the schema has a column."""
        return any(column.name == name for column in self.columns)

    def to_yson(self) -> list[dict[str, Any]]:
        """The schema as the value of the attribute."""
        columns: list[dict[str, Any]] = []
        for column in self.columns:
            fields: dict[str, Any] = {"name": column.name, "type": column.type, "required": column.required}
            if column.is_key:
                fields["sort_order"] = "ascending"
            columns.append(fields)
        return columns


CONSUMER_SCHEMA = Schema(
    (
        Column("queue_cluster", "string", required=True, is_key=True),
        Column("queue_path", "string", required=True, is_key=True),
        Column("partition_index", "uint64", required=True, is_key=True),
        Column("offset", "uint64", required=True),
        Column("meta", "any"),
    )
)
PRODUCER_SCHEMA = Schema(
    (
        Column("queue_cluster", "string", required=True, is_key=True),
        Column("queue_path", "string", required=True, is_key=True),
        Column("session_id", "string", required=True, is_key=True),
        Column("sequence_number", "int64", required=True),
        Column("epoch", "int64", required=True),
        Column("user_meta", "any"),
        Column("system_meta", "any"),
    )
)
# Of a Kafka topic that is read as a queue.
KAFKA_SCHEMA = Schema(
    (Column("key", "string"), Column("value", "string"), Column("headers", "any"), Column(TIMESTAMP, "uint64", required=True))
)


def parse_schema(attribute: Any) -> Schema:
    """Parse the schema attribute."""
    if not isinstance(attribute, list) or not attribute:
        raise YtError(GENERIC, "a schema must be a list of columns, such as [{name=data;type=string}]")
    columns = tuple(_column(fields) for fields in attribute)
    names = [column.name for column in columns]
    if len(set(names)) < len(names):
        raise YtError(SCHEMA_VIOLATION, "two columns of the schema have the same name")
    system_types = {TIMESTAMP: "uint64", WEIGHT: "int64"}
    for column in columns:
        if column.name in system_types and column.type != system_types[column.name]:
            raise YtError(
                SCHEMA_VIOLATION, f"column {column.name} must be of type {system_types[column.name]}, not {column.type}"
            )
        if column.name.startswith("$") and column.name not in system_types:
            raise YtError(SCHEMA_VIOLATION, f"{column.name} is not a system column that a queue can have")
    return Schema(columns)


def _column(fields: Any) -> Column:
    if not isinstance(fields, dict) or not isinstance(fields.get("name"), str) or not fields["name"]:
        raise YtError(
            GENERIC, f"a column of a schema must have a name and a type, as in {{name=data;type=string}}, not {fields!r}"
        )
    type_, required = fields.get("type"), str(fields.get("required", False)).lower() == "true"
    if type_ is None and "type_v3" in fields:
        type_, required = _plain_type(fields["type_v3"])
    type_ = _V3_NAMES.get(str(type_), str(type_))
    if type_ not in STRINGS | SIGNED.keys() | UNSIGNED.keys() | DOUBLES | ANY | {"boolean"}:
        raise YtError(SCHEMA_VIOLATION, f"column {fields['name']!r} has type {type_!r}, which is not supported")
    return Column(str(fields["name"]), type_, required, fields.get("sort_order") is not None)


def _plain_type(type_v3: Any) -> tuple[Any, bool]:
    """The type in a `type_v3`, and whether it is required. A composite type becomes `any`."""
    if not isinstance(type_v3, dict):
        return type_v3, True
    if type_v3.get("type_name") == "optional":
        return _plain_type(type_v3.get("item"))[0], False
    return "any", True
