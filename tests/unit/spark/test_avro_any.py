"""Avro values with arrays, maps, decimals and unions of numbers."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from penstock.spark.avro_any import AnyAvroFormat
from penstock.spark.avro_format import avro_type
from penstock.spark.errors import MalformedValueError
from penstock.spark.options import read_options
from penstock.spark.value_format import ValueFormat
from penstock.spark.value_formats import value_format

LINE = {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}, {"name": "count", "type": "int"}]}
SCHEMA = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "lines", "type": {"type": "array", "items": LINE}},
        {"name": "tags", "type": ["null", {"type": "map", "values": ["null", "string"]}]},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "weight", "type": ["null", "float", "double"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "first", "type": ["null", "Line"]},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}
# As Spark names the parts of lists.
LINE_KIND = pa.struct([("sku", pa.string()), ("count", pa.int32())])
KIND = pa.struct(
    [
        ("lines", pa.list_(pa.field("element", LINE_KIND))),
        ("tags", pa.map_(pa.string(), pa.string())),
        ("total", pa.decimal128(9, 2)),
        ("weight", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("first", LINE_KIND),
        ("id", pa.string()),
    ]
)
AT = datetime(2026, 11, 15, 12, tzinfo=UTC)
ORDER = {
    "lines": [{"sku": "a", "count": 2}, {"sku": "b", "count": -1}],
    "tags": {"gift": "yes", "note": None},
    "total": Decimal("19.90"),
    "weight": 1.5,
    "at": AT,
    "first": {"sku": "a", "count": 2},
    "id": "not checked",
}
PLAIN: dict[str, Any] = {**ORDER, "lines": [], "tags": None, "weight": None, "first": None}


def encoded(record: dict[str, Any]) -> bytes:
    bare = json.loads(json.dumps(SCHEMA).replace(', "logicalType": "uuid"', ""))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(bare), record)
    return out.getvalue()


def decoder(*, fails: bool = False) -> ValueFormat:
    given = {"subscribe": "t", "bootstrap.servers": "h:1", "valueFormat": "avro", "valueSchema": json.dumps(SCHEMA)}
    found = value_format(read_options(given, "any"), KIND, fails=fails)
    assert isinstance(found, AnyAvroFormat)
    return found


def decoded(form: ValueFormat, values: list[bytes | None]) -> list[Any]:
    text = pa.py_buffer(b"".join(value or b"" for value in values))
    starts = np.cumsum([0, *(len(value or b"") for value in values)]).astype(np.int32)
    bits = np.packbits(np.array([value is not None for value in values], bool), bitorder="little")
    array = form.decode(text, starts, pa.py_buffer(bits), np.arange(100, 200))
    array.validate(full=True)
    return list(array.to_pylist())


def test_what_was_written_is_read() -> None:
    first, nothing, second = decoded(decoder(), [encoded(ORDER), None, encoded(PLAIN)])
    assert first == {**ORDER, "tags": [("gift", "yes"), ("note", None)]}
    assert nothing is None
    assert second == PLAIN


def test_the_type_is_what_spark_makes_of_it() -> None:
    assert avro_type(json.dumps(SCHEMA)) == (
        "STRUCT<`lines`: ARRAY<STRUCT<`sku`: STRING, `count`: INT>>, `tags`: MAP<STRING, STRING>, `total`: DECIMAL(9, 2), "
        "`weight`: DOUBLE, `at`: TIMESTAMP, `first`: STRUCT<`sku`: STRING, `count`: INT>, `id`: STRING>"
    )


@pytest.mark.parametrize("bad", [b"", b"\x04", encoded(ORDER)[:-1], encoded(ORDER) + b"\0", b"\xff" * 40])
def test_a_malformed_value_is_null_and_noted(bad: bytes) -> None:
    form = decoder()
    form.malformed = []
    good, lost, last = decoded(form, [encoded(PLAIN), bad, encoded(PLAIN)])
    assert (good, lost, last) == (PLAIN, None, PLAIN)
    assert [one.row for one in form.malformed] == [1]
    assert form.malformed[0].reason.startswith("not Avro of the schema given: ")


def test_a_malformed_value_is_named_by_its_offset() -> None:
    with pytest.raises(MalformedValueError, match="offset 101"):
        decoded(decoder(fails=True), [encoded(PLAIN), encoded(PLAIN)[:-1]])
