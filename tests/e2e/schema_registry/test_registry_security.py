"""The registry of a node with users: who may see, register and delete which subjects, at both of its addresses."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.running_node import RunningNode, penstock, running_node

PASSWORD = "open-sesame"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    path: Path = tmp_path_factory.mktemp("secured")
    (path / "password").write_text(PASSWORD)
    argv = ["--sasl", "true", "--admin-password-file", str(path / "password"), "--http-port", "0", "--schema-registry-port", "0"]
    with running_node(path / "log", ["--data-dir", str(path / "data"), *argv]) as node:
        as_admin = {"PENSTOCK_BOOTSTRAP": node.bootstrap, "PENSTOCK_USER": "admin", "PENSTOCK_PASSWORD": PASSWORD}
        for command in (("user", "set", "anna"), ("access", "allow", "anna", "write", "--topic", "orders")):
            done = penstock(*command, stdin=PASSWORD.encode(), variables=as_admin)
            assert done.returncode == 0, done.stderr
        yield node


@pytest.fixture(params=["schema_registry", "http"])
def url(secured: RunningNode, request: pytest.FixtureRequest) -> str:
    """Each address of the registry."""
    path = "/schema-registry" if request.param == "http" else ""
    return f"http://127.0.0.1:{secured.ready['listeners'][request.param]['port']}{path}"


def call(user: str | None, url: str, method: str = "GET", body: Any = None, password: str = PASSWORD) -> tuple[int, Any]:
    """The status and the answer of a request."""
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    if user is not None:
        headers["Authorization"] = "Basic " + b64encode(f"{user}:{password}".encode()).decode()
    raw = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, raw, headers, method=method), timeout=30) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_a_subject_is_guarded_by_the_rules_of_its_topic(url: str) -> None:
    assert call(None, url + "/subjects")[0] == 401
    assert call("anna", url + "/subjects", password="wrong")[0] == 401
    status, own = call("anna", url + "/subjects/orders-value/versions", "POST", {"schema": '"int"'})
    assert status == 200
    status, refused = call("anna", url + "/subjects/payments-value/versions", "POST", {"schema": '"long"'})
    assert (status, refused["error_code"]) == (403, 40301)
    assert "'payments'" in refused["message"]
    status, other = call("admin", url + "/subjects/payments-value/versions", "POST", {"schema": '"long"'})
    assert status == 200
    assert call("anna", url + "/subjects") == (200, ["orders-value"])
    assert call("anna", url + f"/schemas/ids/{own['id']}")[0] == 200
    assert call("anna", url + f"/schemas/ids/{other['id']}")[0] == 404
    assert call("anna", url + "/subjects/orders-value", "DELETE")[0] == 403
    assert call("anna", url + "/config", "PUT", {"compatibility": "NONE"})[0] == 403
    assert call("admin", url + "/config", "PUT", {"compatibility": "BACKWARD"})[0] == 200


def test_read_only_and_import_modes_hold_for_everyone_and_only_administrators_set_them(url: str) -> None:
    versions = url + "/subjects/orders-value/versions"
    assert call("anna", url + "/mode", "PUT", {"mode": "READONLY"})[0] == 403
    assert call("anna", url + "/mode/orders-value", "PUT", {"mode": "READONLY"})[0] == 403
    assert call("admin", url + "/mode", "PUT", {"mode": "READONLY"}) == (200, {"mode": "READONLY"})
    try:
        for user in ("anna", "admin"):
            status, refused = call(user, versions, "POST", {"schema": '"bytes"'})
            assert (status, refused["error_code"]) == (422, 42205), refused
        assert call("admin", url + "/subjects/orders-value", "DELETE")[0] == 422
        assert call("anna", url + "/subjects")[0] == 200
    finally:
        assert call("admin", url + "/mode", "PUT", {"mode": "READWRITE"})[0] == 200
    imported = {"schema": '"bytes"', "id": 700, "version": 7}
    subject = url + "/subjects/orders-key/versions"
    assert call("anna", subject, "POST", imported)[0] == 422
    assert call("admin", url + "/mode/orders-key?force=true", "PUT", {"mode": "IMPORT"})[0] == 200
    assert call("anna", subject, "POST", imported) == (200, {"id": 700})
    assert call("anna", url + "/schemas/ids/700")[0] == 200
    assert call("admin", url + "/mode/orders-key", "DELETE")[0] == 200
