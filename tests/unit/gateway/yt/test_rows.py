"""Rows and the records they are stored as: nothing is lost either way, whatever a row holds."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from yt import yson

from penstock.broker.weights import weights_of
from penstock.core.record_format import Writer, framed, packed_record, read_headers
from penstock.gateway.yt.errors import YtError
from penstock.gateway.yt.formats import Format
from penstock.gateway.yt.row_batch import commit_timestamp, make_row_batch, read_row_batch
from penstock.gateway.yt.row_codec import RowCodec
from penstock.gateway.yt.row_columns import RowColumns
from penstock.gateway.yt.row_reader import BatchSpan, PulledRows
from penstock.gateway.yt.schema import parse_schema
from penstock.gateway.yt.stored_values import from_stored, to_stored
from penstock.kernels import json_rows, row_pack
from penstock.kernels.json_rows import WEIGHT
from penstock.kernels.record_scan import FIELDS, scan_records
from penstock.queue import check_batch
from tests.kernel_forms import uncompiled

SCHEMA = parse_schema(
    [
        {"name": "text", "type": "string"},
        {"name": "count", "type": "uint64", "required": True},
        {"name": "level", "type": "int8"},
        {"name": "share", "type": "double"},
        {"name": "on", "type": "boolean"},
        {"name": "rest", "type": "any"},
        {"name": "$timestamp", "type": "uint64"},
        {"name": "$cumulative_data_weight", "type": "int64"},
    ]
)


def parsed(text: bytes) -> Any:
    return yson.loads(text, always_create_attributes=False)


def round_trip(text: bytes) -> bytes:
    codec = RowCodec(SCHEMA)
    [row] = codec.decode([codec.encode(parsed(text)).value], lambda: [None], ({}, {}))
    return bytes(yson.dumps(row, yson_format="text", sort_keys=True))


@pytest.mark.parametrize(
    "row",
    [
        b'{"text"="foo";"count"=1u;}',
        b'{"text"="\\xFF\\0";"count"=18446744073709551615u;}',
        b'{"text"="\\xD0\\x9F";"count"=0u;"level"=-128;"share"=0.5;"on"=%true;}',
        b'{"count"=0u;"share"=%inf;}',
        b'{"count"=0u;"share"=2.;}',
        b'{"count"=0u;"rest"={"a"=[1;2u;#;%false;"\\xFF"];"$yson"="x";};}',
        b'{"count"=0u;"rest"=<"a"=1;>"b";}',
    ],
)
def test_a_row_comes_back_as_it_was(row: bytes) -> None:
    columns = {"text": None, "level": None, "share": None, "on": None, "rest": None}
    assert round_trip(row) == bytes(yson.dumps({**columns, **parsed(row)}, yson_format="text", sort_keys=True))


@pytest.mark.parametrize(
    "row",
    [
        b"{}",
        b"{count=#}",
        b"{count=-1}",
        b"{count=1.5}",
        b"{count=a}",
        b"{count=1;text=5}",
        b"{count=1;level=200}",
        b"{count=1;on=5}",
        b"{count=1;share=x}",
        b"{count=1;other=1}",
        b'{count=1;"$timestamp"=1u}',
    ],
)
def test_a_row_that_does_not_fit_is_refused(row: bytes) -> None:
    with pytest.raises(YtError) as caught:
        RowCodec(SCHEMA).encode(parsed(row))
    assert caught.value.number == 307


def test_plain_rows_are_plain_json_to_everyone_else() -> None:
    assert json.loads(RowCodec(SCHEMA).encode(parsed(b"{text=foo;count=7}")).value) == {"text": "foo", "count": 7}


def test_the_weight_of_a_row_is_the_seeds() -> None:
    codec = RowCodec(
        parse_schema(
            [
                {"name": "data", "type": "string"},
                {"name": "$timestamp", "type": "uint64"},
                {"name": "$cumulative_data_weight", "type": "int64"},
            ]
        )
    )
    words = ("foo", "bar", "foobar", "megafoo", "megabar")
    assert [codec.encode({"data": word}).weight for word in words] == [20, 20, 23, 24, 24]


def test_a_batch_of_rows_is_taken_apart_again() -> None:
    codec = RowCodec(SCHEMA)
    given = [{"text": "x" * (number * 37 % 20000), "count": number} for number in range(300)]
    rows = [codec.encode(dict(row)) for row in given]
    raw = make_row_batch([codec.encode_all(given[:100]), codec.encode_all(given[100:])], 1000, 1_700_000_000_123)
    assert check_batch(raw, 1 << 30).messages == 300
    batch = read_row_batch(memoryview(raw))
    assert batch is not None
    everything = slice(None)
    assert batch.values(everything) == [row.value for row in rows]
    assert batch.offsets(batch.from_offset(290, 5)) == list(range(290, 295))
    assert set(batch.times(everything)) == {1_700_000_000_123}
    assert batch.weights is not None
    assert (batch.weights[0], batch.weights[-1]) == (1000 + rows[0].weight, 1000 + sum(row.weight for row in rows))
    weights = weights_of(raw)
    assert weights is not None
    assert (weights.before, weights.after) == (1000, batch.weights[-1])
    headers = batch.headers(everything)
    assert read_headers(headers[1], 0) == []
    assert read_headers(headers[0], 0)[0][0] == b"penstock.weights"


def test_a_batch_of_a_transaction_says_whose_it_is() -> None:
    batch = check_batch(make_row_batch([RowCodec(SCHEMA).encode_all([{"count": 1}])], 0, 5, Writer(7, 3, 0)), 1 << 20)
    assert (batch.is_transactional, batch.producer_id, batch.producer_epoch, batch.base_sequence) == (True, 7, 3, 0)


def test_what_a_kafka_producer_wrote_is_never_hidden() -> None:
    codec = RowCodec(SCHEMA)
    values = [b'{"count": 5}', b"[1]", None, b'{"bro', b"1,2"]
    rows = codec.decode(values, lambda: [None, b"k", None, None, None], ({"place": 1}, {}), are_checked=False)
    assert {row["place"] for row in rows} == {1}
    assert rows[0]["count"] == 5
    assert [(row.get("$key"), row.get("$value")) for row in rows[1:]] == [
        (b"k", b"[1]"),
        (None, None),
        (None, b'{"bro'),
        (None, b"1,2"),
    ]


@pytest.mark.parametrize(
    ("value", "trouble"),
    [
        (b'{"count": "5"}', "expected an integer, not str"),
        (b'{"count": 18446744073709551616}', "18446744073709551616 is not within 0..18446744073709551615"),
        (b'{"count": -1}', "-1 is not within"),
        (b'{"count": 1.0}', "expected an integer, not float"),
        (b'{"count": null}', 'Required column "count" cannot have "null" value'),
        (b"{}", 'Required column "count" cannot have "null" value'),
        (b'{"count": 1, "level": 128}', "128 is not within -128..127"),
        (b'{"count": 1, "text": 5}', "expected a string, not int"),
        (b'{"count": 1, "text": "\\ud800"}', "surrogates not allowed"),
        (b'{"count": 1, "on": "yes"}', "expected a boolean"),
        (b'{"count": 1, "share": NaN}', "NaN is not JSON"),
        (b'{"count": 1, "other": 2}', 'Unexpected column "other"'),
        (b'{"count": 1, "$timestamp": 2}', 'Unexpected column "$timestamp"'),
        (b'{"count": 1, "rest": 123456789012345678901234567890}', "it cannot be stored"),
        (b'{"count": 1, "rest": {"$yson": "{{"}}', "not YSON"),
        (b'{"count": 1, "rest": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", ""),
        (b'{"count": 1}\xff', "can't decode"),
    ],
)
def test_a_row_of_a_kafka_producer_that_does_not_fit_says_why(value: bytes, trouble: str) -> None:
    [row] = RowCodec(SCHEMA).decode([value], lambda: [b"k"], ({}, {}), are_checked=False)
    assert (row["$key"], row["$value"], row["count"], row["text"]) == (b"k", value, None, None)
    assert trouble in row["$error"]


def test_numbers_of_a_kafka_producer_keep_every_digit() -> None:
    value = b'{"count": 18446744073709551615, "share": 3, "rest": {"$yson": "9007199254740993"}}'
    [row] = RowCodec(SCHEMA).decode([value], lambda: [None], ({}, {}), are_checked=False)
    assert (row["count"], row["share"], row["rest"], "$error" in row) == (2**64 - 1, 3.0, 9007199254740993, False)


def test_a_part_of_a_batch_has_no_more_weight_than_asked_for() -> None:
    codec = RowCodec(SCHEMA)
    rows = [{"count": number, "text": "x" * 100} for number in range(50)]
    batch = read_row_batch(make_row_batch([codec.encode_all(rows)], 1000, 5))
    assert batch is not None
    assert batch.weights is not None
    each = int(batch.weights[1] - batch.weights[0])
    assert batch.within_weight(slice(0, 50), each * 7 + 3, at_least=0) == (slice(0, 7), each * 7)
    assert batch.within_weight(slice(10, 50), each * 7, at_least=0) == (slice(10, 17), each * 7)
    assert batch.within_weight(slice(10, 50), 5, at_least=0) == (slice(10, 10), 0)
    assert batch.within_weight(slice(10, 50), 5, at_least=1) == (slice(10, 11), each)
    assert batch.within_weight(slice(45, 95), each * 70, at_least=0) == (slice(45, 50), each * 5)


def test_timestamps_rise_within_a_second_and_give_its_time() -> None:
    stamps = [commit_timestamp(1_700_000_000_000 + millisecond, offset) for millisecond in range(1000) for offset in (0, 1)]
    assert stamps == sorted(set(stamps))
    assert {stamp >> 30 for stamp in stamps} == {1_700_000_000}


@pytest.mark.parametrize("value", [b"{a=1;b=[2u;<x=%true>#]}", b'"\\xFF"', b"%nan", b'{"$yson"=1}', b"#"])
def test_attributes_are_kept_as_they_are(value: bytes) -> None:
    given = yson.loads(value)
    kept = from_stored(to_stored(yson.loads(value, always_create_attributes=False)))
    assert yson.dumps(kept, yson_format="text") == yson.dumps(given, yson_format="text")


def stretch_of(schema: Any, rows: list[dict[str, Any]]) -> tuple[RowCodec, PulledRows]:
    codec = RowCodec(schema)
    batch = read_row_batch(memoryview(make_row_batch([codec.encode_all([dict(row) for row in rows])], 7, 1_700_000_000_123)))
    assert batch is not None
    part = slice(0, len(rows))
    return codec, PulledRows([BatchSpan(batch, part, batch.offsets(part))], 0, 3, codec)


SCALARS = parse_schema(
    [
        {"name": "te%xt", "type": "string"},
        {"name": "count", "type": "uint64"},
        {"name": "level", "type": "int64"},
        {"name": "on", "type": "boolean"},
        {"name": "share", "type": "double"},
        {"name": "$timestamp", "type": "uint64"},
        {"name": "$cumulative_data_weight", "type": "int64"},
    ]
)


@pytest.mark.parametrize(
    "rows",
    [
        [{"te%xt": "foo", "count": 5, "level": -3, "on": True}, {"te%xt": 'q"\n%d\\\x01', "count": 2**64 - 1}],
        [{"share": 0.1, "level": -(2**63)}, {"share": -1e-300, "level": 2**63 - 1}, {"share": 2.5e17}, {"share": float("inf")}],
        [{"count": number} if number % 7 else {"te%xt": None, "on": False} for number in range(500)],
        [{"te%xt": "п" * 300}, {"te%xt": None}, {}],
        [parsed(b'{"te%xt"="\\xFF"}'), {"te%xt": "text"}],
    ],
)
def test_rows_are_the_same_in_every_form(rows: list[dict[str, Any]]) -> None:
    _, pulled = stretch_of(SCALARS, rows)
    binary, text = (pulled.encode(Format("yson", form)) for form in ("binary", "text"))

    def shown(raw: bytes) -> list[bytes]:
        return [yson.dumps(row, yson_format="text", sort_keys=True) for row in yson.loads(raw, yson_type="list_fragment")]

    assert shown(binary) == shown(text)
    assert len(shown(binary)) == len(rows)


def test_a_row_with_a_column_of_no_scalar_is_written_by_the_library() -> None:
    codec, pulled = stretch_of(SCHEMA, [{"count": 1, "rest": {"a": [1]}}])
    assert not codec.columns.are_scalar
    [row] = yson.loads(pulled.encode(Format("yson", "binary")), yson_type="list_fragment")
    assert row["rest"] == {"a": [1]}


scalars = st.fixed_dictionaries(
    {},
    optional={
        "te%xt": st.none() | st.text(max_size=20) | st.binary(max_size=5),
        "count": st.none() | st.integers(0, 2**64 - 1).map(yson.YsonUint64),
        "level": st.none() | st.integers(-(2**63), 2**63 - 1),
        "on": st.none() | st.booleans() | st.integers(0, 1),
        "share": st.none() | st.floats() | st.integers(-(2**40), 2**40),
    },
)


@given(st.lists(scalars, min_size=1, max_size=8))
def test_all_at_once_rows_are_as_one_by_one(rows: list[dict[str, Any]]) -> None:
    codec = RowCodec(SCALARS)
    one_by_one = [codec.encode(dict(row)) for row in rows]
    encoded = codec.encode_all([dict(row) for row in rows])
    assert [(encoded.value(at), encoded.rows[at, WEIGHT]) for at in range(encoded.count)] == one_by_one
    assert encoded.weight == sum(row.weight for row in one_by_one)


@given(st.lists(scalars, min_size=1, max_size=8))
def test_whatever_rows_hold_they_are_the_same_in_every_form(rows: list[dict[str, Any]]) -> None:
    test_rows_are_the_same_in_every_form(rows)


@pytest.mark.parametrize(
    "row",
    [
        {"other": 1},
        {"level": 2**63},
        {"level": "5"},
        {"count": -1},
        {"count": 1.0},
        {"count": True},
        {"te%xt": 5},
        {"te%xt": float("nan")},
        {"on": "true"},
        {"share": True},
        {"te%xt": "x" * (16 << 20)},
    ],
)
def test_a_row_that_does_not_fit_is_refused_among_others(row: dict[str, Any]) -> None:
    with pytest.raises(YtError) as caught:
        RowCodec(SCALARS).encode_all([{"level": 1}, row, {"level": 2}])
    assert caught.value.number == 307


def test_rows_without_what_is_required_are_refused_all_at_once() -> None:
    with pytest.raises(YtError, match='"count"'):
        RowCodec(SCHEMA).encode_all([{"count": 1}, {"level": 1}])


_WORDS = [
    b"{",
    b"}",
    b'"level"',
    b'"te%xt"',
    b'"on"',
    b'"share"',
    b":",
    b",",
    b" ",
    b"1",
    b"-0",
    b"01",
    b"1.5",
    b"1.",
    b"1e5",
    b"2e999",
]
_WORDS += [
    b"true",
    b"null",
    b'"a"',
    b'"\\n"',
    b'"\\u001f"',
    b'"\\u00e4"',
    b'"\\ud800"',
    b'"\xff"',
    '"ä"'.encode(),
    b'"\x01"',
    b"[",
    b"]",
]


@given(st.lists(st.sampled_from(_WORDS), max_size=12), st.sampled_from([b"", b'{"level":5}', b'{"share" : 1.5, "on": false}']))
def test_what_kafka_clients_have_written_is_read_as_the_library_reads_it(words: list[bytes], whole: bytes) -> None:
    raw = packed_record(0, b"".join(words)) + packed_record(1, whole) + packed_record(2, None)
    batch = read_row_batch(memoryview(framed(raw, 3, (5, 5))))
    assert batch is not None
    codec = RowCodec(SCALARS)
    pulled = PulledRows([BatchSpan(batch, slice(0, 3), [0, 1, 2])], 0, 3, codec)
    try:
        expected = pulled.encode(Format("yson", "text"))
    except (ValueError, TypeError):  # the library has no words for it in either form
        return
    rows = yson.loads(pulled.encode(Format("yson", "binary")), yson_type="list_fragment")
    shown = [yson.dumps(row, yson_format="text", sort_keys=True) for row in rows]
    assert shown == [
        yson.dumps(row, yson_format="text", sort_keys=True) for row in yson.loads(expected, yson_type="list_fragment")
    ]


def test_the_kernels_do_the_same_uncompiled() -> None:
    columns = RowColumns(SCALARS)
    data = b'[{"te%xt":"a\\n\\u0001\xc3\xa4","count":18446744073709551615,"level":-5},'
    data += b'{"on":true,"share":1.5e-7},{"on":[1,{"a":"]"}]},{}]'
    made: list[tuple[Any, ...]] = []
    for scan, pack in ((json_rows, row_pack), (uncompiled("json_rows"), uncompiled("row_pack"))):
        rows, found = np.empty((4, json_rows.ROW_FIELDS), np.int64), np.zeros((20, json_rows.VALUE_FIELDS), np.int64)
        given = {"columns": columns.columns, "limits": columns.limits, "names": columns.names}
        scan.measure_rows(data, rows, found, base_weight=1, **given)
        out = np.zeros(2000, np.uint8).data
        packed = bytes(out[: pack.pack_row_records(data, rows, 200, out)])
        table = np.zeros((4, FIELDS), np.int64)
        scan_records(packed, table)
        count = scan.scan_rows(packed, table, found, **given)
        around = {"base_offset": 7, "before": b"{", "after": b"", "weights": np.arange(4)}
        used = pack.write_yson(packed, table[:count], found, out, columns=columns.columns, names=columns.names, **around)
        made.append((rows.tolist(), packed, count, bytes(out[:used])))
    assert made[0] == made[1]
    assert made[0][2] == 2
    assert [row[json_rows.WEIGHT] for row in made[0][0]] == [1 + 5 + 8 + 8, 1 + 1 + 8, -1, 1]
