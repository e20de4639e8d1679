"""The registry as Confluent's own client sees it, unchanged, at both of its addresses."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from tests.e2e.running_node import RunningNode


def avro(*fields: str, needed: str = "") -> Schema:
    """A record of integers, all but one with a default."""
    of_fields = [{"name": name, "type": "int", **({} if name == needed else {"default": 0})} for name in fields]
    return Schema(json.dumps({"type": "record", "name": "R", "fields": of_fields}), "AVRO")


def call(url: str, method: str = "GET", body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    """The status and the answer of a request."""
    raw = None if body is None else json.dumps(body).encode()
    headers = headers or {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, raw, headers, method=method), timeout=30) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


@pytest.mark.parametrize("address", ["url", "http_url"])
def test_the_client_registers_looks_up_checks_and_deletes(address: str, request: pytest.FixtureRequest) -> None:
    subject = f"orders/{address}-value"
    with SchemaRegistryClient({"url": request.getfixturevalue(address)}) as client:
        first = client.register_schema(subject, avro("a"))
        assert client.register_schema(subject, avro("a")) == first
        assert client.lookup_schema(subject, avro("a")).version == 1
        assert not client.test_compatibility(subject, avro("a", "b", needed="b"))
        with pytest.raises(SchemaRegistryError, match="'b'") as refused:
            client.register_schema(subject, avro("a", "b", needed="b"))
        assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)
        second = client.register_schema(subject, avro("a", "b"))
        assert client.get_latest_version(subject).schema_id == second
        assert client.get_versions(subject) == [1, 2]
        assert json.loads(client.get_schema(first).schema_str or "") == json.loads(avro("a").schema_str or "")
        client.set_compatibility(subject_name=subject, level="NONE")
        assert (client.get_compatibility(subject), client.get_compatibility()) == ("NONE", "BACKWARD")
        assert client.delete_version(subject, 1) == 1
        assert client.delete_subject(subject) == [2]
        assert subject not in client.get_subjects()
        assert client.delete_subject(subject, permanent=True) == [1, 2]


def test_references_lead_to_the_schemas_they_name(url: str) -> None:
    with SchemaRegistryClient({"url": url}) as client:
        client.register_schema("address", Schema('{"type":"record","name":"x.Address","fields":[]}', "AVRO"))
        person = '{"type":"record","name":"Person","fields":[{"name":"home","type":"x.Address"}]}'
        schema = Schema(person, "AVRO", [SchemaReference("x.Address", "address", 1)])
        schema_id = client.register_schema("person", schema)
        assert client.get_schema(schema_id).references == [SchemaReference("x.Address", "address", 1)]
        assert call(f"{url}/subjects/address/versions/1/referencedby") == (200, [schema_id])


@pytest.mark.parametrize(
    ("method", "path", "body", "number"),
    [
        ("GET", "/subjects/none/versions", None, 40401),
        ("GET", "/subjects/known/versions/7", None, 40402),
        ("GET", "/subjects/known/versions/0", None, 42202),
        ("GET", "/schemas/ids/4711", None, 40403),
        ("POST", "/subjects/known/versions", {"schema": "{"}, 42201),
        ("POST", "/subjects/known/versions", {"schema": '"int"', "schemaType": "COBOL"}, 42201),
        ("POST", "/subjects/known/versions", {"scheme": '"int"'}, 422),
        ("POST", "/subjects/known", {"schema": '"long"'}, 40403),
        ("PUT", "/config", {"compatibility": "SIDEWAYS"}, 42203),
        ("PUT", "/mode/known", {"mode": "MAYBE"}, 42204),
        ("GET", "/config/known", None, 40408),
        ("DELETE", "/subjects/known?permanent=true", None, 40405),
        ("GET", "/nothing", None, 404),
    ],
)
def test_errors_have_the_numbers_that_clients_know(url: str, method: str, path: str, body: Any, number: int) -> None:
    call(url + "/subjects/known/versions", "POST", {"schema": '"int"'})
    status, answer = call(url + path, method, body)
    assert (status, answer["error_code"]) == (int(str(number)[:3]), number)
    assert answer["message"]


def test_paths_may_end_with_a_slash(url: str) -> None:
    for path in ("/config", "/subjects", "/schemas/types"):
        assert call(url + path + "/") == call(url + path)


def test_the_topic_is_readable_in_the_form_of_other_registries(node: RunningNode, url: str) -> None:
    call(url + "/subjects/shown/versions", "POST", {"schema": '"bytes"'})
    settings = {"bootstrap.servers": node.bootstrap, "group.id": "tool", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe(["_schemas"])
    while True:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        key = json.loads(message.key() or b"")
        if key.get("subject") == "shown":
            break
    consumer.close()
    assert key == {"keytype": "SCHEMA", "subject": "shown", "version": 1, "magic": 1}
    value = json.loads(message.value() or b"")
    assert (value["subject"], value["version"], value["schema"]) == ("shown", 1, '"bytes"')


def test_pages_of_other_sites_and_forms_are_refused(url: str) -> None:
    assert call(url + "/subjects", headers={"Origin": "http://elsewhere.example"})[0] == 403
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert call(url + "/subjects/x/versions", "POST", {"schema": '"int"'}, form)[0] == 415
