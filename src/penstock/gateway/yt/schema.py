"""Schemas of tables: which columns there are, and what each takes."""

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
    """One column."""

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
        """Whether there is such a column."""
        return any(column.name == name for column in self.columns)

    def shown(self) -> list[dict[str, Any]]:
        """As the attribute gives it."""
        shown: list[dict[str, Any]] = []
        for column in self.columns:
            one: dict[str, Any] = {"name": column.name, "type": column.type, "required": column.required}
            if column.is_key:
                one["sort_order"] = "ascending"
            shown.append(one)
        return shown


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
# What a topic of Kafka's clients is as a queue.
KAFKA_SCHEMA = Schema(
    (Column("key", "string"), Column("value", "string"), Column("headers", "any"), Column(TIMESTAMP, "uint64", required=True))
)


def schema_of(given: Any) -> Schema:
    """The schema in an attribute."""
    if not isinstance(given, list) or not given:
        raise YtError(GENERIC, "a schema is a list of columns, such as [{name=data;type=string}]")
    columns = tuple(_column(one) for one in given)
    names = [column.name for column in columns]
    if len(set(names)) < len(names):
        raise YtError(SCHEMA_VIOLATION, "two columns of the schema have the same name")
    wrong = {TIMESTAMP: "uint64", WEIGHT: "int64"}
    for column in columns:
        if column.name in wrong and column.type != wrong[column.name]:
            raise YtError(SCHEMA_VIOLATION, f"column {column.name} is of type {wrong[column.name]}, not {column.type}")
        if column.name.startswith("$") and column.name not in wrong:
            raise YtError(SCHEMA_VIOLATION, f"{column.name} is not a system column that a queue can have")
    return Schema(columns)


def _column(given: Any) -> Column:
    if not isinstance(given, dict) or not isinstance(given.get("name"), str) or not given["name"]:
        raise YtError(GENERIC, f"a column of a schema has a name and a type, as in {{name=data;type=string}}, not {given!r}")
    type_, required = given.get("type"), str(given.get("required", False)).lower() == "true"
    if type_ is None and "type_v3" in given:
        type_, required = _plain_type(given["type_v3"])
    type_ = _V3_NAMES.get(str(type_), str(type_))
    if type_ not in STRINGS | SIGNED.keys() | UNSIGNED.keys() | DOUBLES | ANY | {"boolean"}:
        raise YtError(SCHEMA_VIOLATION, f"column {given['name']!r} has type {type_!r}, which is not known")
    return Column(str(given["name"]), type_, required, given.get("sort_order") is not None)


def _plain_type(given: Any) -> tuple[Any, bool]:
    """The type of a `type_v3`; what is composite there is an `any` here."""
    if not isinstance(given, dict):
        return given, True
    if given.get("type_name") == "optional":
        return _plain_type(given.get("item"))[0], False
    return "any", True
