"""Avro values to Arrow columns, compiled and as plain Python, against values written by another library."""

from __future__ import annotations

import importlib.util
import io
import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock.kernels
from penstock.kernels import avro_decode
from penstock.spark import avro_format
from penstock.spark.avro_format import AvroFormat, AvroProgram, avro_type
from penstock.spark.errors import MalformedValueError, OptionError

SOURCE = Path(penstock.kernels.__file__).with_name("avro_decode.py")


def _uncompiled() -> ModuleType:
    spec = importlib.util.spec_from_file_location("avro_decode_uncompiled", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.COMPILED is False
    return module


PLAIN = _uncompiled()

SCHEMA = {
    "type": "record",
    "name": "Everything",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "small", "type": ["null", "int"]},
        {"name": "flag", "type": "boolean"},
        {"name": "maybe", "type": ["boolean", "null"]},
        {"name": "ratio", "type": "float"},
        {"name": "score", "type": ["null", "double"]},
        {"name": "name", "type": {"type": "string"}},
        {"name": "raw", "type": ["null", "bytes"]},
        {"name": "color", "type": {"type": "enum", "name": "Color", "symbols": ["RED", "GREEN", "A_LONG_NAME"]}},
        {"name": "other", "type": ["null", "Color"]},
        {"name": "hash", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "exactly", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {
            "name": "inner",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Inner",
                    "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": ["null", "string"]}],
                },
            ],
        },
        {"name": "again", "type": "Inner"},
    ],
}
PARSED = fastavro.parse_schema(SCHEMA)

inner = st.fixed_dictionaries({"x": st.integers(-(1 << 31), (1 << 31) - 1), "y": st.none() | st.text(max_size=5)})
moments = st.integers(0, 7_000_000_000_000_000).map(lambda us: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us))
colors = st.sampled_from(["RED", "GREEN", "A_LONG_NAME"])
records = st.fixed_dictionaries(
    {
        "id": st.integers(-(1 << 63), (1 << 63) - 1),
        "small": st.none() | st.integers(-(1 << 31), (1 << 31) - 1),
        "flag": st.booleans(),
        "maybe": st.none() | st.booleans(),
        "ratio": st.floats(width=32, allow_nan=False),
        "score": st.none() | st.floats(allow_nan=False),
        "name": st.text(max_size=20),
        "raw": st.none() | st.binary(max_size=20),
        "color": colors,
        "other": st.none() | colors,
        "hash": st.binary(min_size=4, max_size=4),
        "day": st.dates(date(1970, 1, 1), date(2200, 1, 1)),
        "at": moments.map(lambda one: one.replace(microsecond=one.microsecond // 1000 * 1000)),
        "exactly": st.none() | moments,
        "inner": st.none() | inner,
        "again": inner,
    }
)


def encoded(record: Any, schema: Any = PARSED) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, record)
    return out.getvalue()


def decoded(values: list[bytes | None], schema: Any = SCHEMA, *, fails: bool = False) -> list[Any]:
    """By both forms of the kernel."""
    text = pa.py_buffer(b"".join(value or b"" for value in values))
    starts = np.cumsum([0, *(len(value or b"") for value in values)]).astype(np.int32)
    bits = np.packbits(np.array([value is not None for value in values], bool), bitorder="little")
    kind = AvroProgram.of(json.dumps(schema))[1].arrow
    found = []
    for kernel in (avro_decode, PLAIN):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(avro_format, "kernel", kernel)
            array = AvroFormat(kind, json.dumps(schema), fails=fails).decode(
                text, starts, None if None not in values else pa.py_buffer(bits), np.arange(100, 200)
            )
        array.validate(full=True)
        found.append(array.to_pylist())
    assert found[0] == found[1]
    return list(found[0])


@settings(max_examples=50)
@given(st.lists(st.none() | records, max_size=12))
def test_what_another_library_wrote_is_read(values: list[Any]) -> None:
    assert decoded([None if value is None else encoded(value) for value in values]) == values


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=10))
def test_any_bytes_are_rows_or_nulls(values: list[Any]) -> None:
    simple = {"type": "record", "name": "S", "fields": [{"name": "a", "type": ["null", "long"]}, {"name": "b", "type": "bytes"}]}
    assert len(decoded(values, simple)) == len(values)


@settings(max_examples=40)
@given(records, st.data())
def test_a_value_that_is_cut_short_or_too_long_is_null_among_good_ones(record: Any, data: st.DataObject) -> None:
    good = encoded(record)
    bad = data.draw(st.one_of(st.integers(0, len(good) - 1).map(lambda size: good[:size]), st.just(good + b"\0")))
    assert decoded([good, bad, good]) == [record, None, record]


def test_a_malformed_value_is_an_error_that_names_it_if_asked() -> None:
    record = {"a": 5}
    schema = {"type": "record", "name": "S", "fields": [{"name": "a", "type": "int"}]}
    good = encoded(record, fastavro.parse_schema(schema))
    with pytest.raises(MalformedValueError, match="the value at offset 101 is not Avro"):
        decoded([good, b"", good], schema, fails=True)


@pytest.mark.parametrize("bad", [b"\x02", b"\x04\0", b"\xff" * 11])
def test_a_branch_that_there_is_not_is_malformed(bad: bytes) -> None:
    schema = {"type": "record", "name": "S", "fields": [{"name": "a", "type": ["null", "long"]}]}
    assert decoded([bad, b"\0"], schema) == [None, {"a": None}]


def test_a_number_larger_than_its_type_is_malformed() -> None:
    long = encoded(
        {"a": 1 << 31}, fastavro.parse_schema({"type": "record", "name": "S", "fields": [{"name": "a", "type": "long"}]})
    )
    assert decoded([long], {"type": "record", "name": "S", "fields": [{"name": "a", "type": "int"}]}) == [None]
    millis = {
        "type": "record",
        "name": "S",
        "fields": [{"name": "a", "type": {"type": "long", "logicalType": "timestamp-millis"}}],
    }
    far = encoded(
        {"a": 1 << 62}, fastavro.parse_schema({"type": "record", "name": "S", "fields": [{"name": "a", "type": "long"}]})
    )
    assert decoded([far, b"\x02"], millis) == [None, {"a": datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=1)}]


def test_the_type_is_told_as_spark_writes_it() -> None:
    assert avro_type(json.dumps(SCHEMA)) == (
        "STRUCT<`id`: BIGINT, `small`: INT, `flag`: BOOLEAN, `maybe`: BOOLEAN, `ratio`: FLOAT, `score`: DOUBLE, `name`: STRING, "
        "`raw`: BINARY, `color`: STRING, `other`: STRING, `hash`: BINARY, `day`: DATE, `at`: TIMESTAMP, `exactly`: TIMESTAMP, "
        "`inner`: STRUCT<`x`: INT, `y`: STRING>, `again`: STRUCT<`x`: INT, `y`: STRING>>"
    )


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "not JSON"),
        ('"long"', "must be a record"),
        ({"type": "record", "name": "R", "fields": []}, "without fields"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": ["int", "string"]}]}, "a union of several types"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "R"]}]}, "'R', which is not decoded"),
    ],
)
def test_what_is_not_decoded_is_refused(schema: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        avro_type(schema if isinstance(schema, str) else json.dumps(schema))


def test_another_type_than_the_read_asks_for_is_refused() -> None:
    with pytest.raises(OptionError, match="but the schema of the read has"):
        AvroFormat(pa.struct([("id", pa.int32())]), json.dumps(SCHEMA), fails=False)
