"""Change events of Debezium as rows: the state after the change, or before a deletion, with the operation beside it.

An event is `{"before": …, "after": …, "op": "c|r|u|d", "ts_ms": …}`, in JSON perhaps within `{"schema": …, "payload": …}`.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.errors import MalformedValueError, OptionError
from penstock.spark.malformed import MalformedValue
from penstock.spark.value_format import ValueFormat

OP: Final = "__op"
TIME: Final = "__ts_ms"
_ROW_OPERATIONS: Final = ("c", "r", "u", "d")
_DELETE: Final = "d"
_PAYLOAD: Final = re.compile(rb'"payload"')


def row_type(fields: str) -> str:
    """The Spark type, as DDL, of rows with these fields."""
    return f"STRUCT<{fields}, `{OP}`: STRING, `{TIME}`: BIGINT>"


def envelope_type(kind: pa.DataType, *, wrapped: bool) -> pa.DataType:
    """The type of events whose rows are of `kind`; JSON ones may be wrapped in a payload."""
    row = pa.struct([field for field in kind if field.name not in (OP, TIME)])
    event = [pa.field("before", row), pa.field("after", row), pa.field("op", pa.string()), pa.field("ts_ms", pa.int64())]
    return pa.struct([*event, pa.field("payload", pa.struct(event))] if wrapped else event)


def row_schema(schema: str) -> str:
    """The Avro schema of the rows in the schema of their events."""
    try:
        fields = {field["name"]: field["type"] for field in json.loads(schema)["fields"]}
        kinds = [
            kind for name in ("before", "after") for kind in (fields[name] if isinstance(fields[name], list) else [fields[name]])
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise OptionError(f"valueSchema is not that of Debezium's events, with before, after and op: {error}") from error
    for kind in kinds:
        if isinstance(kind, dict) and kind.get("type") == "record":
            return json.dumps(kind)
    raise OptionError("valueSchema is not that of Debezium's events: neither before nor after is a record")


class JsonEventFormat:
    """Decodes events by `wrapped` where one may be within a payload, else by `plain`, which has half of the columns to fill."""

    def __init__(self, wrapped: ValueFormat, plain: ValueFormat) -> None:
        self.wrapping = wrapped.wrapping
        self.malformed: list[MalformedValue] | None = None
        self._wrapped = wrapped
        self._plain = plain

    def decode(self, text: pa.Buffer, starts: Any, valid: pa.Buffer | None, offsets: Any) -> pa.Array:
        """See `ValueFormat`."""
        form = self._plain if _PAYLOAD.search(memoryview(text)) is None else self._wrapped
        form.malformed = self.malformed
        return form.decode(text, starts, valid, offsets)


class DebeziumFormat:
    """Decodes events by `inner`, and makes rows of them."""

    def __init__(self, kind: pa.DataType, inner: ValueFormat, *, fails: bool) -> None:
        self.wrapping = inner.wrapping
        self.malformed: list[MalformedValue] | None = None
        self._kind = kind
        self._inner = inner
        self._fails = fails

    def decode(self, text: pa.Buffer, starts: Any, valid: pa.Buffer | None, offsets: Any) -> pa.Array:
        """See `ValueFormat`."""
        self._inner.malformed = self.malformed
        events = self._inner.decode(text, starts, valid, offsets)
        fields = _flat(events)
        if "payload" in fields:
            inner = _flat(fields["payload"])
            fields = {name: pc.if_else(inner["op"].is_valid(), inner[name], fields[name]) for name in inner}
        op = fields["op"].cast(pa.string())
        is_row = pc.is_in(op, value_set=pa.array(_ROW_OPERATIONS))
        wrong = pc.and_(events.is_valid(), pc.invert(is_row))
        if pc.any(wrong, min_count=0).as_py():
            self._refuse(wrong, op, offsets)
        deletes = pc.fill_null(pc.equal(op, _DELETE), False)
        before, after = _flat(fields["before"]), _flat(fields["after"])
        columns = []
        for field in self._kind:
            if field.name == OP:
                columns.append(op)
            elif field.name == TIME:
                columns.append(fields["ts_ms"].cast(pa.int64()))
            else:
                columns.append(pc.if_else(deletes, before[field.name], after[field.name]).cast(field.type))
        mask = pc.or_(events.is_null(), wrong)
        return pa.StructArray.from_arrays(columns, fields=list(self._kind), mask=mask)

    def _refuse(self, wrong: pa.Array, op: pa.Array, offsets: Any) -> None:
        for row in np.flatnonzero(wrong.to_numpy(zero_copy_only=False)):
            given = op[int(row)].as_py()
            what = "it has no op" if given is None else f"its op {given!r} changes no row"
            if self._fails:
                raise MalformedValueError(
                    f"the value at offset {offsets[row]} is no change event of Debezium: {what}. Set onMalformed to null to have "
                    "null in its place"
                )
            if self.malformed is not None:
                self.malformed.append(MalformedValue(int(row), f"no change event of Debezium: {what}"))


def _flat(struct: pa.Array) -> dict[str, pa.Array]:
    """The fields of a struct, null where it is null."""
    return dict(zip((field.name for field in struct.type), struct.flatten(), strict=True))
