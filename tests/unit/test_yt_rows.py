"""Rows and the records they are stored as: nothing is lost either way, whatever a row holds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from yt import yson

from penstock.broker.weights import weights_of
from penstock.core.record_format import Writer, read_headers
from penstock.gateway.yt.errors import YtError
from penstock.gateway.yt.formats import Format
from penstock.gateway.yt.row_batch import commit_timestamp, make_row_batch, read_row_batch
from penstock.gateway.yt.row_codec import RowCodec
from penstock.gateway.yt.row_reader import Pulled, Stretch
from penstock.gateway.yt.schema import schema_of
from penstock.gateway.yt.stored_values import from_stored, to_stored
from penstock.queue import check_batch

SCHEMA = schema_of(
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
    [row] = codec.decode([codec.encode(parsed(text)).value], lambda: [None], {}, {})
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
        schema_of(
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
    rows = [codec.encode({"text": "x" * (number * 37 % 20000), "count": number}) for number in range(300)]
    raw = make_row_batch(rows, 1000, 1_700_000_000_123)
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
    batch = check_batch(make_row_batch([RowCodec(SCHEMA).encode({"count": 1})], 0, 5, Writer(7, 3, 0)), 1 << 20)
    assert (batch.is_transactional, batch.producer_id, batch.producer_epoch, batch.base_sequence) == (True, 7, 3, 0)


def test_what_a_kafka_producer_wrote_is_never_hidden() -> None:
    codec = RowCodec(SCHEMA)
    values = [b'{"count": 5}', b"[1]", None, b'{"bro', b"1,2"]
    rows = codec.decode(values, lambda: [None, b"k", None, None, None], {"place": 1}, {})
    assert {row["place"] for row in rows} == {1}
    assert rows[0]["count"] == 5
    assert [(row.get("$key"), row.get("$value")) for row in rows[1:]] == [
        (b"k", b"[1]"),
        (None, None),
        (None, b'{"bro'),
        (None, b"1,2"),
    ]


def test_timestamps_rise_within_a_second_and_give_its_time() -> None:
    stamps = [commit_timestamp(1_700_000_000_000 + millisecond, offset) for millisecond in range(1000) for offset in (0, 1)]
    assert stamps == sorted(set(stamps))
    assert {stamp >> 30 for stamp in stamps} == {1_700_000_000}


@pytest.mark.parametrize("value", [b"{a=1;b=[2u;<x=%true>#]}", b'"\\xFF"', b"%nan", b'{"$yson"=1}', b"#"])
def test_attributes_are_kept_as_they_are(value: bytes) -> None:
    given = yson.loads(value)
    kept = from_stored(to_stored(yson.loads(value, always_create_attributes=False)))
    assert yson.dumps(kept, yson_format="text") == yson.dumps(given, yson_format="text")


def stretch_of(schema: Any, rows: list[dict[str, Any]]) -> tuple[RowCodec, Pulled]:
    codec = RowCodec(schema)
    batch = read_row_batch(memoryview(make_row_batch([codec.encode(dict(row)) for row in rows], 7, 1_700_000_000_123)))
    assert batch is not None
    part = slice(0, len(rows))
    return codec, Pulled([Stretch(batch, part, batch.offsets(part))], 0, 3, codec)


SCALARS = schema_of(
    [
        {"name": "te%xt", "type": "string"},
        {"name": "count", "type": "uint64"},
        {"name": "level", "type": "int64"},
        {"name": "on", "type": "boolean"},
        {"name": "$timestamp", "type": "uint64"},
        {"name": "$cumulative_data_weight", "type": "int64"},
    ]
)


@pytest.mark.parametrize(
    "rows",
    [
        [{"te%xt": "foo", "count": 5, "level": -3, "on": True}, {"te%xt": 'q"\n%d\\', "count": 2**64 - 1}],
        [{"te%xt": "п" * 300}, {"te%xt": None}, {}],
        [parsed(b'{"te%xt"="\\xFF"}'), {"te%xt": "text"}],
    ],
)
def test_rows_are_the_same_in_every_form(rows: list[dict[str, Any]]) -> None:
    _, pulled = stretch_of(SCALARS, rows)
    binary, text = (pulled.written(Format("yson", form)) for form in ("binary", "text"))

    def shown(raw: bytes) -> list[bytes]:
        return [yson.dumps(row, yson_format="text", sort_keys=True) for row in yson.loads(raw, yson_type="list_fragment")]

    assert shown(binary) == shown(text)
    assert len(shown(binary)) == len(rows)


def test_a_row_with_a_column_of_no_scalar_is_written_by_the_library() -> None:
    codec, pulled = stretch_of(SCHEMA, [{"count": 1, "rest": {"a": [1]}}])
    assert not codec.binary.can_write
    [row] = yson.loads(pulled.written(Format("yson", "binary")), yson_type="list_fragment")
    assert row["rest"] == {"a": [1]}
