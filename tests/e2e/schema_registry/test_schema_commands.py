"""`penstock schema`, `produce --schema` and `consume --decode`, as a user runs them."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient

from tests.e2e.running_node import RunningNode

AVRO = '{"type":"record","name":"Order","fields":[{"name":"n","type":"int"},{"name":"s","type":"string","default":""}]}'
PROTO = 'syntax = "proto3"; import "item.proto"; message Order { int32 n = 1; Item item = 2; }'
ITEM = 'syntax = "proto3"; message Item { string name = 1; }'


@pytest.mark.parametrize(
    ("name", "schema", "value"),
    [
        ("order.avsc", AVRO, {"n": 7, "s": "x"}),
        ("order.proto", PROTO, {"n": 7, "item": {"name": "x"}}),
    ],
)
def test_values_are_written_and_read_by_a_schema(
    node: RunningNode, tmp_path: Path, name: str, schema: str, value: object
) -> None:
    file, item = tmp_path / name, tmp_path / "item.proto"
    file.write_text(schema)
    item.write_text(ITEM)
    references: tuple[str, ...] = ()
    if name.endswith(".proto"):
        node.ok("schema", "register", "item", str(item))
        references = ("--reference", "item.proto=item:1")
    schema_id = node.ok("schema", "register", f"{name}-value", str(file), *references).strip()
    node.ok("produce", name, "--schema", f"{name}-value", stdin=json.dumps(value).encode())
    node.ok("produce", name, "not framed")
    assert node.ok("consume", name, "--decode").splitlines() == [json.dumps(value), "not framed"]
    assert json.loads(node.ok("schema", "get", "--id", schema_id, "-o", "json"))["schema"]
    refused = node.run("produce", name, "--schema", f"{name}-value", stdin=b'{"n": "seven"}')
    assert refused.returncode == 2
    assert b"message 1 of the input" in refused.stderr


def test_a_schema_is_checked_before_it_is_registered(node: RunningNode, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.avsc", tmp_path / "bad.avsc"
    good.write_text(AVRO)
    bad.write_text(AVRO.replace('"int"', '"bytes"'))
    node.ok("schema", "register", "checked", str(good))
    node.ok("schema", "check", "checked", str(good))
    refused = node.run("schema", "check", "checked", str(bad))
    assert refused.returncode == 1
    assert b"/fields/0/type" in refused.stdout
    unknown = node.run("schema", "register", "checked", str(tmp_path / "x.txt"))
    assert (unknown.returncode, b"--type" in unknown.stderr) == (2, True)


def test_schemas_are_copied_with_their_ids(node: RunningNode, tmp_path: Path) -> None:
    first, second = tmp_path / "first.avsc", tmp_path / "second.avsc"
    first.write_text('"string"')
    second.write_text('{"type":"map","values":"int"}')
    ids = [node.ok("schema", "register", subject, str(file)) for subject, file in (("copied-1", first), ("copied-2", second))]
    lines = [line for line in node.ok("schema", "export").splitlines() if '"copied-' in line]
    for subject in ("copied-1", "copied-2"):
        node.ok("schema", "delete", subject)
        node.ok("schema", "delete", subject, "--permanent")
    assert "copied" not in node.ok("schema", "list")
    exported = tmp_path / "schemas.jsonl"
    exported.write_text("\n".join(lines))
    node.ok("schema", "import", str(exported))
    rows = [line.split("\t") for line in node.ok("schema", "list", "copied", "--no-headers").splitlines()]
    assert [row[2] for row in rows] == [schema_id.strip() for schema_id in ids]


# As Confluent's registry writes them, with all that it adds.
# Of names that nothing else on the node has: there, a schema has one id.
THEIR_SCHEMAS: Final = [f'{{"type":"fixed","name":"Theirs{size}","size":{size}}}' for size in (1, 2, 3, 4)]
THEIRS: list[tuple[dict[str, Any], dict[str, Any] | None]] = [
    ({"magic": 0, "keytype": "NOOP"}, None),
    (
        {"keytype": "SCHEMA", "subject": "theirs-value", "version": 1, "magic": 1},
        {
            "subject": "theirs-value",
            "version": 1,
            "id": 7001,
            "guid": "6e1f",
            "md5": "aGFzaA==",
            "schemaType": "AVRO",
            "references": [],
            "metadata": None,
            "ruleSet": None,
            "schema": THEIR_SCHEMAS[0],
            "deleted": False,
            "ts": 1,
            "offset": 2,
        },
    ),
    (
        {"keytype": "SCHEMA", "subject": "theirs-value", "version": 2, "magic": 1},
        {"subject": "theirs-value", "version": 2, "id": 7002, "schema": THEIR_SCHEMAS[1], "deleted": False},
    ),
    (
        {"keytype": "SCHEMA", "subject": ":.old:theirs", "version": 3, "magic": 1},
        {"subject": ":.old:theirs", "version": 3, "id": 5, "schemaType": "JSON", "schema": '{"type":"string"}', "deleted": False},
    ),
    (
        {"keytype": "SCHEMA", "subject": "theirs-gone", "version": 1, "magic": 1},
        {"subject": "theirs-gone", "version": 1, "id": 7003, "schema": THEIR_SCHEMAS[2], "deleted": False},
    ),
    ({"keytype": "DELETE_SUBJECT", "subject": "theirs-gone", "magic": 0}, {"subject": "theirs-gone", "version": 1}),
    (
        {"keytype": "SCHEMA", "subject": "theirs-erased", "version": 1, "magic": 1},
        {"subject": "theirs-erased", "version": 1, "id": 7004, "schema": THEIR_SCHEMAS[3], "deleted": False},
    ),
    ({"keytype": "SCHEMA", "subject": "theirs-erased", "version": 1, "magic": 1}, None),
    ({"keytype": "CONFIG", "subject": "theirs-value", "magic": 0}, {"subject": "theirs-value", "compatibilityLevel": "FULL"}),
]


def test_the_topic_of_another_registry_is_imported_and_exported(node: RunningNode, url: str) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for key, value in THEIRS:
        producer.produce("their-schemas", None if value is None else json.dumps(value), json.dumps(key))
    assert producer.flush(60) == 0
    for _ in range(2):  # it may be repeated
        node.ok("schema", "import", "--topic", "their-schemas")
    with SchemaRegistryClient({"url": url}) as registry:
        assert [(item.version, item.schema_id) for item in map(partial(registry.get_version, "theirs-value"), (1, 2))] == [
            (1, 7001),
            (2, 7002),
        ]
        assert registry.get_version(":.old:theirs", 3).schema_id == 5
        assert registry.get_compatibility("theirs-value") == "FULL"
        assert registry.get_schema(7003).schema_str == THEIR_SCHEMAS[2], "what was written with a deleted schema is readable"
        subjects = set(registry.get_subjects())
        assert ("theirs-gone" in subjects, "theirs-erased" in subjects) == (False, False)
    node.ok("schema", "export", "--topic", "our-schemas")
    records = node.ok("consume", "our-schemas", "-f", "json").splitlines()
    values = {record["key"]: json.loads(record["value"]) for record in map(json.loads, records)}
    live = json.dumps({"keytype": "SCHEMA", "subject": "theirs-value", "version": 2, "magic": 1}, separators=(",", ":"))
    assert (values[live]["id"], values[live]["schema"], values[live]["deleted"]) == (7002, THEIR_SCHEMAS[1], False)
    gone = live.replace("theirs-value", "theirs-gone").replace('"version":2', '"version":1')
    assert values[gone]["deleted"] is True
