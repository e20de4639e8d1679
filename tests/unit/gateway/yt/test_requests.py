"""What clients send, taken apart: formats, paths and parameters; whatever it is, the worst answer is an error of YT's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yt import yson
from yt.yson import YsonUint64, to_yson_type

from penstock.gateway.yt.errors import YtError, as_yt_error, error_headers
from penstock.gateway.yt.formats import (
    Format,
    parse_format,
    parse_json,
    parse_yson,
    read_rows,
    read_value,
    write_rows,
    write_value,
)
from penstock.gateway.yt.paths import parse_path
from penstock.gateway.yt.query import parse_query
from penstock.gateway.yt.schema import parse_schema
from penstock.queue import OffsetOutOfRangeError
from penstock.server import BadSettingError, load_config

PLAIN = {"a": 1, "b": ["x", None, True, 2.5], "текст": "п"}


SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=8), inner), max_leaves=8)


def code_of(read: Callable[[], object]) -> int:
    """The code of the error that something raises; 0 if it does not. Any other error than one of YT's passes."""
    try:
        read()
    except YtError as error:
        return error.number
    return 0


@pytest.mark.parametrize(
    "wanted",
    [
        to_yson_type("yson", {"format": "text"}),
        to_yson_type("yson", {"format": "pretty"}),
        "yson",
        "json",
        to_yson_type("json", {"encode_utf8": False}),
        b"<format=text>yson",
        None,
    ],
)
def test_a_value_is_read_as_it_was_written(wanted: object) -> None:
    format_ = parse_format(wanted)
    assert read_value(format_, write_value(format_, PLAIN)) == PLAIN
    assert read_rows(format_, write_rows(format_, [PLAIN, {"a": 2}])) == [PLAIN, {"a": 2}]


@pytest.mark.parametrize("wanted", ["xml", to_yson_type("yson", {"format": "nice"}), 5, "<", b"<a=1>"])
def test_formats_that_are_not_there(wanted: object) -> None:
    with pytest.raises(YtError):
        parse_format(wanted)


def test_in_json_each_character_is_a_byte_unless_told_otherwise() -> None:
    assert write_value(Format("json"), "п") == '"Ð¿"'.encode()
    assert write_value(Format("json", is_latin=False), "п") == '"п"'.encode()
    raw = read_value(Format("json"), '"\u00ff"'.encode())
    assert yson.dumps(raw, yson_format="text") == b'"\\xFF"'


@given(VALUES)
def test_plain_json_is_read_alike_by_the_quick_way_and_the_other(value: Any) -> None:
    raw = json.dumps({"a": value}).encode()
    slowly = json.dumps({"a": value, "b": {"$value": 1}}).encode()
    for is_latin in (True, False):
        read: list[Any] = []
        for each in (raw, slowly):
            try:
                read.append(parse_json(each, "it", is_latin=is_latin)["a"])
            except YtError:
                read.append("refused")
        assert read[0] == read[1]


def test_numbers_in_json_keep_every_digit() -> None:
    assert parse_json(b"[99999999999999999999, 18446744073709551615, 9007199254740993]", "it") == [
        99999999999999999999,
        18446744073709551615,
        9007199254740993,
    ]


def test_json_that_is_slow_to_read_is_bounded() -> None:
    assert code_of(lambda: parse_json(b'{"$value": [' + b"1," * 600_000 + b"1]}", "it")) == 110
    assert len(parse_json(b"[" + b"1," * 600_000 + b"1]", "it")) == 600_001


def test_attributes_in_json() -> None:
    value = parse_json(b'{"$attributes": {"cluster": "hume"}, "$value": "//tmp/c"}', "a path")
    assert parse_path(value).cluster == "hume"


@pytest.mark.parametrize(
    ("given_path", "node", "attribute", "cluster"),
    [
        ("//tmp/q", "//tmp/q", None, None),
        ("//tmp/q/@", "//tmp/q", (), None),
        ("//tmp/q/@a/b/0", "//tmp/q", ("a", "b", "0"), None),
        ("/", "/", None, None),
        ("//", "/", None, None),
        ("#1-2-3-4/@id", "#1-2-3-4", ("id",), None),
        ("<cluster=hume>//tmp/q", "//tmp/q", None, "hume"),
        (to_yson_type("//tmp/q", {"cluster": "hume"}), "//tmp/q", None, "hume"),
        (b"//tmp/q&/@a", "//tmp/q", ("a",), None),
    ],
)
def test_paths(given_path: Any, node: str, attribute: tuple[str, ...] | None, cluster: str | None) -> None:
    assert parse_path(given_path)[:3] == (node, attribute, cluster)


def test_a_path_with_an_attribute_is_no_table() -> None:
    with pytest.raises(YtError):
        parse_path("//tmp/q/@a").ref("here")
    assert str(parse_path("//tmp/q").ref("here")) == "here://tmp/q"


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_an_error(raw: bytes) -> None:
    assert code_of(lambda: parse_yson(raw, "it")) in (0, 110)
    assert code_of(lambda: parse_json(raw, "it")) in (0, 110)
    assert code_of(lambda: read_rows(Format("yson"), raw)) in (0, 110)
    assert code_of(lambda: read_rows(Format("json"), raw)) in (0, 110)


@given(st.text(max_size=40) | st.binary(max_size=20) | VALUES)
def test_anything_is_a_path_or_an_error(value: object) -> None:
    assert code_of(lambda: parse_path(value)) in (0, 1)
    assert code_of(lambda: parse_format(value)) in (0, 110)


@given(st.text(alphabet='* from[]/twhere<>=andorby,"limit0123 ()#%', max_size=60))
def test_any_text_is_a_query_or_an_error(text: str) -> None:
    assert code_of(lambda: parse_query(f"{text} from [//t] {text}").run([{"a": 1}])) in (0, 1)


@given(VALUES)
def test_any_value_is_a_schema_or_an_error(value: Any) -> None:
    assert code_of(lambda: parse_schema(value)) in (0, 1, 307)


def test_errors_fit_into_headers_whatever_they_say() -> None:
    headers = error_headers(YtError(500, "line\nbreak п " + "x" * 20_000, {"path": "п" * 20_000}))
    assert all(value.isascii() and "\n" not in value and len(value) < 16_000 for value in headers.values())
    assert as_yt_error(OffsetOutOfRangeError("beyond")).number == 1


def test_unsigned_numbers_stay_unsigned() -> None:
    assert write_rows(Format("yson", "text"), [{"a": YsonUint64(5)}]) == b'{"a"=5u;};\n'


def test_clusters_in_settings(tmp_path: Path) -> None:
    option = {"peer_clusters": ["hume=http://127.0.0.1:8001", "mars=https://mars.example"]}
    peers = {"hume": "http://127.0.0.1:8001", "mars": "https://mars.example"}
    assert load_config(option, {}).peer_clusters == peers
    variable = {"PENSTOCK_PEER_CLUSTERS": "hume=http://127.0.0.1:8001,mars=https://mars.example"}
    assert load_config({}, variable).peer_clusters == peers
    file = tmp_path / "penstock.toml"
    file.write_text('cluster_name = "pythia"\n[peer_clusters]\nhume = "http://127.0.0.1:8001"\n')
    config = load_config({}, {}, file)
    assert (config.cluster_name, config.peer_clusters) == ("pythia", {"hume": "http://127.0.0.1:8001"})


@pytest.mark.parametrize("wrong", ["hume", "hume=", "=http://x", "hume=ftp://x", "a b=http://x", "a=http://x,a=http://y"])
def test_clusters_that_cannot_be_read(wrong: str) -> None:
    with pytest.raises(BadSettingError, match="peer_clusters"):
        load_config({}, {"PENSTOCK_PEER_CLUSTERS": wrong})
