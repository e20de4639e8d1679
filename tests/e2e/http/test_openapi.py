"""The API is as its document says: schemathesis sends every route what the document allows, and what it does not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks

from tests.e2e.http.api_client import ApiClient
from tests.e2e.running_node import RunningNode

EXAMPLES = 6
TOPIC, CONSUMER = "there", "someone"
PARTITIONS_MAX = 5  # a topic of as many as are allowed takes a while to make


def test_the_document_names_every_route_once_and_says_how_each_can_end(api: ApiClient) -> None:
    document = api.get("/openapi.json")
    assert document["openapi"] == "3.1.0"
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names) >= 25
    for operation in operations:
        assert operation["summary"]
        assert {"200", "400", "401", "403", "503"} <= operation["responses"].keys()


def test_the_document_is_printed_without_a_node_as_a_node_answers_it(api: ApiClient) -> None:
    printed = subprocess.run([sys.executable, "-m", "penstock.server.http"], capture_output=True, check=True)
    assert json.loads(printed.stdout) == api.get("/openapi.json")


def test_no_request_is_answered_otherwise_than_documented(node: RunningNode, api: ApiClient) -> None:
    api.post("/topics", {"name": TOPIC, "partitions": 2})
    for number in range(3):
        api.post(f"/topics/{TOPIC}/messages", {"value": {"n": number}, "key": "k", "headers": {"h": "1"}})
    node.ok("group", "reset", CONSUMER, "--topic", TOPIC, "--to", "earliest", "--yes")
    load_all_checks()
    # A tail does not end by itself; it has tests of its own.
    schema = schemathesis.openapi.from_url(f"{api.address}/api/v1/openapi.json").exclude(path_regex="/tail$")
    for found in schema.get_all_operations():
        operation: Any = found.ok()  # type: ignore[union-attr]  # an error fails the test as it should
        _try_out(operation, GenerationMode.POSITIVE)
        if operation.query or operation.body:  # a name alone is wrong in one way only, which takes long to find
            _try_out(operation, GenerationMode.NEGATIVE)
    assert node.process.poll() is None
    assert api.get("/cluster")["name"] == "penstock"


def _try_out(operation: Any, mode: GenerationMode) -> None:
    @given(case=operation.as_strategy(generation_mode=mode), is_there=st.booleans())
    @settings(max_examples=EXAMPLES, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None)
    def check(case: Any, is_there: bool) -> None:
        if mode is GenerationMode.POSITIVE and is_there and case.method != "DELETE" and "name" in case.path_parameters:
            case.path_parameters["name"] = CONSUMER if "/consumers" in case.path else TOPIC
        for name in ("partitions", "total"):
            if isinstance(case.body, dict) and isinstance(case.body.get(name), int):
                case.body[name] = min(case.body[name], PARTITIONS_MAX)
        case.call_and_validate(excluded_checks=_excluded(mode), timeout=30)

    check()


def _excluded(mode: GenerationMode) -> list[Any]:
    """What a schema allows may still be refused for what it means: an offset beyond the end, a configuration not known."""
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    return [positive_data_acceptance] if mode is GenerationMode.POSITIVE else []


def test_every_route_is_in_the_reference_and_nothing_else(api: ApiClient) -> None:
    page = (Path(__file__).parents[3] / "docs/reference/http.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^\| `([A-Z]+ /[^`]*)` \|", page, re.MULTILINE))
    paths = api.get("/openapi.json")["paths"]
    served = {f"{method.upper()} {path.removeprefix('/api/v1')}" for path, methods in paths.items() for method in methods}
    assert told == served
