"""Compares the columns of a table with those that a pipeline writes: what must change, and whether it can."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa

from penstock.spark.tables.errors import TableSchemaError

Widens = Callable[[pa.DataType, pa.DataType], bool]


class SchemaChange(NamedTuple):
    """Columns that a table lacks, and columns whose type must become wider."""

    added: list[pa.Field]
    widened: list[pa.Field]


def plan_change(current: pa.Schema, wanted: pa.Schema, table: str, *, evolves: bool, widens: Widens) -> SchemaChange:
    """The change that lets a table accept rows of another schema. Raises TableSchemaError with the first impossible column."""
    change = SchemaChange([], [])
    by_case = {name.lower(): name for name in current.names}
    for field in wanted:
        if field.name not in current.names:
            if field.name.lower() in by_case:
                raise TableSchemaError(
                    f"{table} has a column {by_case[field.name.lower()]!r}, the pipeline writes {field.name!r}: not all readers "
                    "tell them apart; name it as the table does"
                )
            change.added.append(field.with_nullable(True))
        elif not same_type(current.field(field.name).type, field.type) and not _fits(field.type, current.field(field.name).type):
            has = current.field(field.name).type
            if not widens(has, field.type):
                raise TableSchemaError(
                    f"column {field.name!r} of {table} is {has}, the pipeline writes {field.type}, and the table cannot be made "
                    "to take that; write another table, or keep the type"
                )
            change.widened.append(field)
    for field in current:
        if field.name not in wanted.names and not field.nullable:
            raise TableSchemaError(f"column {field.name!r} of {table} takes no nulls, and the pipeline does not write it")
    if (change.added or change.widened) and not evolves:
        what = ", ".join(f"{field.name} {field.type}" for field in (*change.added, *change.widened))
        raise TableSchemaError(f"{table} lacks {what}; schema_evolution: add_columns would change the table, but it is refuse")
    return change


def same_type(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether two types hold the same values, ignoring the names of nested fields in Arrow."""
    return bool(plain_type(left) == plain_type(right))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """A type without what Arrow adds to it: large offsets, names of items, nullability."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", plain_type(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, plain_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    return kind


def small_offsets(field: pa.Field) -> pa.Field:
    """A field with 32-bit offsets throughout; everything else, ids included, is unchanged."""
    kind = field.type
    if pa.types.is_large_string(kind):
        kind = pa.string()
    elif pa.types.is_large_binary(kind):
        kind = pa.binary()
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = pa.list_(small_offsets(kind.value_field))
    elif pa.types.is_struct(kind):
        kind = pa.struct([small_offsets(field) for field in kind])
    elif pa.types.is_map(kind):
        kind = pa.map_(small_offsets(kind.key_field), small_offsets(kind.item_field))
    return field.with_type(kind)


def is_wider(has: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of one type fits the other: wider numbers."""
    if pa.types.is_integer(has) and pa.types.is_integer(wanted):
        return bool(wanted.bit_width > has.bit_width)
    if pa.types.is_decimal(has) and pa.types.is_decimal(wanted):
        return bool(wanted.scale == has.scale and wanted.precision > has.precision)
    return bool(pa.types.is_float32(has) and pa.types.is_float64(wanted))


def _fits(written: pa.DataType, held: pa.DataType) -> bool:
    return is_wider(written, held)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert a batch to a table's schema: columns by name, null where one is missing."""
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    columns = []
    for field in schema:
        if field.name not in batch.schema.names:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(field.name)
        columns.append(column if column.type.equals(field.type) else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
