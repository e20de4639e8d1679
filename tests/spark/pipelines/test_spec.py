"""The file of a pipeline: what is wrong in it is told with file, line and field, all at once, before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.pipeline import KINDS
from penstock.cli.pipeline_templates import template
from penstock.kafka.client import BrokerUnreachableError, TopicPartition
from penstock.spark.pipelines import validation
from penstock.spark.pipelines.errors import SpecError
from penstock.spark.pipelines.fence import target_options
from penstock.spark.pipelines.spec import PipelineSpec
from penstock.spark.pipelines.spec_reading import read_spec

GOOD = """\
pipeline: pages
kind: transform
brokers: 127.0.0.1:9092
source:
  topics: [clicks]
  value: {format: json, schema: "id BIGINT"}
transform: {sql: SELECT id FROM clicks}
target: {topic: pages}
"""


def read(tmp_path: Path, text: str) -> PipelineSpec:
    """The pipeline of a text."""
    path = tmp_path / "p.yaml"
    path.write_text(text)
    return read_spec(str(path))


def faults(tmp_path: Path, text: str) -> list[str]:
    """What is wrong with a text, without the name of the file."""
    with pytest.raises(SpecError) as caught:
        read(tmp_path, text)
    prefix = f"{tmp_path / 'p.yaml'}:"
    lines = str(caught.value).splitlines()
    assert all(line.startswith(prefix) for line in lines), lines
    return [line.removeprefix(prefix) for line in lines]


def test_a_good_file_has_its_defaults(tmp_path: Path) -> None:
    spec = read(tmp_path, GOOD)
    assert (spec.name, spec.consumer, spec.dead_letters.topic) == ("pages", "pages", "pages.dead")
    assert (str(spec.trigger), spec.rows_max, spec.restart.attempts, spec.restart.backoff_s) == ("continuous", 1_000_000, 10, 5.0)


@pytest.mark.parametrize("kind", KINDS)
def test_what_init_writes_is_valid(tmp_path: Path, kind: str) -> None:
    spec = read(tmp_path, template(kind, "first", "p.yaml"))
    assert (spec.name, spec.kind) == ("first", kind)


@pytest.mark.parametrize(
    ("old", "new", "line", "told"),
    [
        ("kind: transform", "kind: transfrom", 2, "kind: it is 'transfrom' (did you mean transform?); it takes"),
        ("kind: transform\n", "", 1, "kind is missing; it takes one of export, load"),
        ("topics:", "topic:", 5, "source.topic: there is no such field; did you mean topics?"),
        ("[clicks]", "[cli/cks]", 5, "source.topics[0]: 'cli/cks' cannot name a topic"),
        ("[clicks]", "[]", 5, "source.topics: it is empty; name at least one"),
        ("[clicks]", "[[1]]", 5, "source.topics[0]: it is a list; it takes a text"),
        ("format: json", "format: jsn", 6, "source.value.format: it is 'jsn' (did you mean json?); it takes raw, json, avro,"),
        ("format: json", "format: json, subject: x", 6, "source.value.subject: it goes with registry"),
        ("format: json", "format: debezium-avro", 6, "source.value.schema: the schema is not that of Debezium's events"),
        ("format: json", "format: protobuf", 6, "source.value: descriptor_file is missing; a file that `protoc"),
        (
            'format: json, schema: "id BIGINT"',
            "format: avro, registry: 'http://u:secret@127.0.0.1:9'",
            6,
            "source.value.registry: the schema registry at http://127.0.0.1:9 cannot be read",
        ),
        (', schema: "id BIGINT"', "", 6, "source.value: schema is missing; format json needs it"),
        ("format: json", "format: avro", 6, "source.value.schema: the schema is not JSON"),
        ("format: json", "format: raw", 6, "source.value.schema: raw values have no schema"),
        (
            "brokers: 127.0.0.1:9092",
            "brokers: 127.0.0.1:x",
            3,
            "brokers: kafka.bootstrap.servers: '127.0.0.1:x' is not an address",
        ),
        ("{sql: SELECT id FROM clicks}", "{}", 7, "transform: give one of sql and python"),
        ("{sql: SELECT", "{python: f, sql: SELECT", 7, "transform: both sql and python are given"),
        ("{sql: SELECT id FROM clicks}", "{python: f}", 7, "transform.python: it is 'f'; it takes FILE.py:FUNCTION"),
        ("target: {topic: pages}", "target: {}", 8, "target: topic or table is missing"),
        ("target: {topic: pages}", "target: {topic: clicks}", 8, "target.topic: 'clicks' is read as well"),
        (
            "target: {topic: pages}",
            "target: {topic: a, table: {format: delta, location: b}}",
            8,
            "target.table: topic is given as well",
        ),
        ("target: {topic: pages}", "target: {table: {format: delta}}", 8, "target.table: location is missing"),
        ("target: {topic: pages}", "target: {table: {format: iceberg}}", 8, "target.table: name is missing"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_field(tmp_path: Path, old: str, new: str, line: int, told: str) -> None:
    assert old in GOOD
    found = faults(tmp_path, GOOD.replace(old, new))
    assert any(one.startswith(f"{line}: {told}") for one in found), found


def test_an_unknown_format_is_one_mistake(tmp_path: Path) -> None:
    assert len(faults(tmp_path, GOOD.replace("format: json", "format: jsn"))) == 1


def test_a_broker_that_is_down_is_told_once_with_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "CONNECT_S", 0.3)
    with pytest.raises(BrokerUnreachableError) as refused:
        validation.check_broker(read(tmp_path, GOOD.replace("127.0.0.1:9092", "127.0.0.1:1")))
    told = str(refused.value)
    assert "p.yaml:3: brokers: cannot connect to 127.0.0.1:1" in told
    assert told.endswith("is a node running there? `penstock up` starts one, brokers says where to look first")


@pytest.mark.parametrize(
    ("added", "told"),
    [
        ("triger: once", "9: triger: there is no such field; did you mean trigger?"),
        ("trigger: hourly", "9: trigger: it is 'hourly'; it takes continuous, once or {every: 5m}"),
        ("trigger: {every: 5 parsecs}", "9: trigger.every: it is '5 parsecs'; it takes a duration"),
        ("batch: {rows_max: 0}", "9: batch.rows_max: it is 0; it takes a whole number from 1 on"),
        ("batch: {rows_max: many}", "9: batch.rows_max: it is 'many'; it takes a whole number"),
        ("batch: 5", "9: batch: it is 5; it takes fields with values"),
        ("restart: {backof: 1s}", "9: restart.backof: there is no such field; did you mean backoff?"),
        ("restart:\n  attempts: 1\n  backoff: soon", "11: restart.backoff: it is 'soon'; it takes a duration"),
        ("dead_letters: drop", "9: dead_letters: it takes {topic: NAME}, {table: {...}} or stop"),
        ("dead_letters: {topic: clicks}", "9: dead_letters.topic: 'clicks' is read as well"),
        ("dead_letters: {topic: pages}", "9: dead_letters.topic: it is the target as well"),
        ("vital: sometimes", "9: vital: it is 'sometimes'; it takes true or false"),
        (
            "options: {kafka.compresion.type: zstd}",
            "9: options.kafka.compresion.type: there is no option kafka.compresion.type; did you mean kafka.compression.type?",
        ),
        ("options: {kafka.isolation.level: x}", "9: options.kafka.isolation.level: kafka.isolation.level is 'x'"),
        ("options: {ssl: true}", "9: options.ssl: only options that begin with kafka. go here"),
        ("pipeline: again", "9: pipeline: it is there twice, first in line 1"),
        ("x: [", "10: this is not YAML"),
    ],
)
def test_a_field_too_many_or_wrong_is_told(tmp_path: Path, added: str, told: str) -> None:
    found = faults(tmp_path, GOOD + added + "\n")
    assert any(one.startswith(told) for one in found), found


def test_all_mistakes_are_told_at_once_in_order_of_lines(tmp_path: Path) -> None:
    text = GOOD.replace("kind: transform", "kind: transform\nbatch: {rows_max: -1}").replace("[clicks]", "[a b]") + "triger: x\n"
    assert [int(one.split(":")[0]) for one in faults(tmp_path, text)] == [3, 6, 10]


@pytest.mark.parametrize(
    ("kind", "source", "told"),
    [
        ("load", "{topics: [a]}", "source.topics: a pipeline of kind load reads files or table"),
        (
            "export",
            "{files: {path: x, format: csv, schema: a INT}}",
            "source.files: a pipeline of kind export reads topics or pattern",
        ),
        ("export", "{topics: [a], end: latest}", "source.end: only a replay has an end"),
        ("replay", "{topics: [a], start: latest}", "source.start: a replay from latest on would read nothing"),
        ("replay", "{topics: [a], start: yesterday}", "source.start: it takes earliest, latest"),
        ("replay", "{topics: [a], start: {time: soon}}", "source.start.time: it takes a time with its zone"),
        (
            "replay",
            "{topics: [a], start: {offsets: {a: {x: 1}}}}",
            "source.start.offsets.a.x: it takes the number of a partition",
        ),
        ("load", "{files: {path: x, format: csv}}", "source.files: schema is missing; CSV files do not tell"),
        ("load", "{files: {path: x, format: xml}}", "source.files.format: it is 'xml'; it takes parquet, csv or json"),
        ("export", "{pattern: '('}", "source.pattern: '(' is no regular expression"),
        (
            "export",
            "{topics: [a], pattern: b}",
            "source: a pipeline of kind export reads one of topics and pattern; topics and pattern",
        ),
    ],
)
def test_what_does_not_fit_the_kind_is_told(tmp_path: Path, kind: str, source: str, told: str) -> None:
    target = "{topic: t}" if kind in ("load", "replay") else "{table: {format: delta, location: x}}"
    found = faults(tmp_path, f"pipeline: p\nkind: {kind}\nsource: {source}\ntarget: {target}\n")
    assert any(one.startswith(f"3: {told}") for one in found), found


def test_positions_are_read(tmp_path: Path) -> None:
    source = "{topics: [a], start: {time: 2026-11-01T00:00:00Z}, end: {offsets: {a: {'0': 7, 1: -1}}}}"
    spec = read(tmp_path, f"pipeline: p\nkind: replay\nsource: {source}\ntarget: {{topic: t}}\n")
    assert spec.source.start.timestamp_ms == 1793491200000
    assert spec.source.end is not None
    assert spec.source.end.offsets == {TopicPartition("a", 0): 7, TopicPartition("a", 1): -1}


def test_a_file_of_python_makes_the_same(tmp_path: Path) -> None:
    path = tmp_path / "p.py"
    path.write_text(
        "from penstock.spark.pipelines import Pipeline\n"
        "def make(clicks):\n    return clicks\n"
        "pipeline = Pipeline({\n"
        "    'pipeline': 'pages',\n    'kind': 'transform',\n"
        "    'source': {'topics': ['clicks']},\n    'transform': {'python': make},\n"
        "    'target': {'topic': 'pages'},\n})\n"
    )
    spec = read_spec(str(path))
    assert spec.transform is not None
    assert callable(spec.transform.python)
    assert spec.origin.lines["source.topics[0]"] == 7


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("from penstock.spark.pipelines import Pipeline\n\npipeline = Pipeline({\n 'kind': 'x',\n})\n", 4, "kind: it is 'x'"),
        ("x = 1\n", 1, "pipeline: it must set `pipeline = Pipeline({...})`"),
        ("x = (\n", 1, "this is not Python"),
        ("x = 1\ny = x / 0\n", 2, "it fails: ZeroDivisionError"),
    ],
)
def test_mistakes_in_python_have_lines_too(tmp_path: Path, text: str, line: int, told: str) -> None:
    path = tmp_path / "p.py"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        read_spec(str(path))
    assert f"{path}:{line}: {told}" in str(caught.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"missing\.yaml:1: cannot be read: No such file"):
        read_spec(str(tmp_path / "missing.yaml"))


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    spec = read(tmp_path, GOOD)
    assert spec.path("lake/x") == str(tmp_path / "lake" / "x")
    assert spec.path("s3://bucket/x") == "s3://bucket/x"
    assert spec.checkpoint == str(tmp_path / ".penstock" / "pages")


SECURED = """\
options:
  kafka.security.protocol: SASL_SSL
  kafka.sasl.mechanism: SCRAM-SHA-256
  kafka.sasl.jaas.config: 'X required username="u" password="${SECRET}";'
  kafka.ssl.truststore.location: PEM
  kafka.ssl.truststore.type: PEM
"""


def test_options_of_security_are_checked_together_and_take_secrets_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ca.pem").write_text("")
    monkeypatch.setenv("SECRET", 'a"b\\c')
    text = GOOD + SECURED.replace("location: PEM", f"location: {tmp_path / 'ca.pem'}")
    spec = read(tmp_path, text)
    assert target_options(spec).client.security.password == 'a"b\\c'
    assert 'a"b' not in repr(spec)
    monkeypatch.delenv("SECRET")
    assert faults(tmp_path, text) == [
        "12: options.kafka.sasl.jaas.config: the environment has no variable SECRET; set it where the pipeline runs"
    ]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('  kafka.sasl.jaas.config: \'X required username="u" password="${file:none}";\'\n', "none cannot be read"),
        ("  kafka.sasl.jaas.config: '${my-x}'\n", "${my-x} is neither ${NAME} of a variable nor ${file:PATH}"),
        ("", "SASL needs a user and a password: kafka.sasl.username and kafka.sasl.password"),
        ("  kafka.sasl.username: u\n  kafka.sasl.password: p\n", "there is no file PEM on this machine"),
    ],
)
def test_what_is_missing_for_a_sign_in_is_told(tmp_path: Path, line: str, told: str) -> None:
    given = [each for each in SECURED.splitlines(keepends=True) if "jaas" not in each]
    assert any(told in fault for fault in faults(tmp_path, GOOD + "".join([*given, line])))


def test_a_reference_may_be_written_out(tmp_path: Path) -> None:
    spec = read(tmp_path, GOOD + "options: {kafka.client.id: 'a$${b}'}\n")
    assert spec.options["kafka.client.id"] == "a${b}"
