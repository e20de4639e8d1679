"""The compiled check of Avro values agrees with fastavro: on random schemas, values that it wrote, and other bytes."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels import avro_check
from penstock.schemas import check_of, parse_schema
from penstock.schemas.avro_program import CompiledAvro
from tests.kernel_forms import uncompiled

Json = Any
PLAIN = ("boolean", "int", "long", "float", "double", "bytes", "string")
RECURSIVE = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": "leaf", "type": "string"}, {"name": "children", "type": {"type": "array", "items": "Tree"}}],
}


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3, names: list[int] | None = None) -> Json:
    """A schema, with names that do not repeat."""
    names = [0] if names is None else names
    names[0] += 1
    name = f"N{names[0]}"
    kinds = [*PLAIN, "null", "enum", "fixed"]
    kind = draw(st.sampled_from(kinds + (["record", "array", "map", "union"] * 3 if depth else [])))
    if kind == "enum":
        return {"type": "enum", "name": name, "symbols": draw(st.sampled_from([["A"], ["A", "B", "C"]]))}
    if kind == "fixed":
        return {"type": "fixed", "name": name, "size": draw(st.integers(0, 20))}
    if kind == "record":
        fields = [
            {"name": f"f{number}", "type": draw(schemas(depth=depth - 1, names=names))}
            for number in range(draw(st.integers(0, 4)))
        ]
        return {"type": "record", "name": name, "fields": fields}
    if kind == "array":
        # Items that take no bytes are tested apart: fastavro makes a list of as many as damaged bytes ask for.
        fields = [
            {"name": "n", "type": draw(st.sampled_from(PLAIN))},
            {"name": "more", "type": draw(schemas(depth=depth - 1, names=names))},
        ]
        return {"type": "array", "items": {"type": "record", "name": name, "fields": fields}}
    if kind == "map":
        return {"type": "map", "values": draw(schemas(depth=depth - 1, names=names))}
    if kind == "union":
        plain = draw(st.lists(st.sampled_from(["null", *PLAIN]), unique=True, max_size=3))
        named = {"type": "record", "name": name, "fields": [{"name": "x", "type": draw(schemas(depth=depth - 1, names=names))}]}
        return draw(st.permutations([*plain, named]))
    return kind


@st.composite
def values(draw: st.DrawFn, schema: Json) -> Any:
    """A value of a schema, as fastavro takes it."""
    if isinstance(schema, list):
        branch = draw(st.sampled_from(schema))
        return (branch["name"] if isinstance(branch, dict) else branch, draw(values(branch)))
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        return {field["name"]: draw(values(field["type"])) for field in schema["fields"]}
    if kind == "array":
        return draw(st.lists(values(schema["items"]), max_size=3))
    if kind == "map":
        return draw(st.dictionaries(st.text(max_size=3), values(schema["values"]), max_size=3))
    if kind == "enum":
        return draw(st.sampled_from(schema["symbols"]))
    if kind == "fixed":
        return draw(st.binary(min_size=schema["size"], max_size=schema["size"]))
    return draw(
        {
            "null": st.none(),
            "boolean": st.booleans(),
            "int": st.integers(-(1 << 31), (1 << 31) - 1),
            "long": st.integers(-(1 << 63), (1 << 63) - 1),
            "float": st.floats(width=32),
            "double": st.floats(),
            "bytes": st.binary(max_size=20),
            "string": st.text(max_size=20),
        }[kind]
    )


@st.composite
def damaged(draw: st.DrawFn, raw: bytes) -> bytes:
    """Bytes of a value with something cut off, changed or added."""
    data = bytearray(raw)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        change = draw(st.sampled_from(["cut", "set", "insert", "drop"]))
        if change == "cut":
            del data[at:]
        elif change == "set" and at < len(data):
            data[at] = draw(st.integers(0, 255))
        elif change == "insert":
            data[at:at] = draw(st.binary(min_size=1, max_size=4))
        elif at < len(data):
            del data[at]
    return bytes(data)


def written(schema: Json, value: Any) -> bytes:
    """A value as fastavro writes it."""
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, fastavro.parse_schema(schema), value)
    return sink.getvalue()


def read_whole(schema: Json, raw: bytes) -> Any:
    """A value as fastavro reads it, with the branches of unions named. ValueError if bytes are left over."""
    source = io.BytesIO(raw)
    value = fastavro.schemaless_reader(
        source, fastavro.parse_schema(schema), None, return_record_name=True, return_named_type=True
    )
    if source.read(1):
        raise ValueError("bytes are left over")
    return value


def problems(schema: Json, raw: bytes) -> list[tuple[int, str]]:
    """What the check finds in a value, which stands among other bytes."""
    data = b"\xff" * 7 + raw + b"\xff" * 7
    payloads = np.array([[0, 1, 7, len(raw)]], np.int64)
    return check_of(parse_schema("AVRO", json.dumps(schema), {})).find_invalid(data, payloads, 1)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_what_fastavro_writes_matches_and_the_rest_is_what_it_would_not_write(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    raw = written(schema, data.draw(values(schema)))
    assert not problems(schema, raw)
    changed = data.draw(damaged(raw) | st.binary(max_size=40))
    try:
        value = read_whole(schema, changed)
    except Exception:  # noqa: BLE001 - fastavro stumbles over damaged bytes in many ways
        assert problems(schema, changed)
        return
    found = problems(schema, changed)
    if not found or "does not fit an int" in found[0][1]:  # fastavro holds no int to its 32 bits
        return
    # fastavro takes a boolean of 7, a branch of -1 and the like, and never writes them.
    try:
        again = written(schema, value)
    except Exception:  # noqa: BLE001 - as above
        return
    assert again != changed


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_compiled_and_plain_kernels_agree(data: st.DataObject) -> None:
    schema = data.draw(schemas() | st.just(RECURSIVE))
    raw = data.draw(st.binary(max_size=60))
    compiled = check_of(parse_schema("AVRO", json.dumps(schema), {}))
    payloads = np.array([[0, 1, 0, len(raw)]], np.int64)
    first = compiled.find_invalid(raw, payloads, 1)
    parsed: Any = parse_schema("AVRO", json.dumps(schema), {})
    tables = CompiledAvro(parsed.root)
    program = uncompiled("avro_check").AvroProgram(tables.steps, tables.branches)
    calls = np.empty((1000, avro_check.CALL_FIELDS), np.int64)
    number, reason, at, _ = program.find_invalid(raw, payloads, 0, calls)
    assert (number < 0) == (not first)
    assert number < 0 or f"at byte {at} " in first[0][1], (reason, first)
