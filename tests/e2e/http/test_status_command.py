"""`penstock status` and `penstock storage` against a real node."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.http.api_client import ApiClient, client_of
from tests.e2e.kafka.secured import CERTIFICATE
from tests.e2e.running_node import RunningNode, penstock, running_node
from tests.e2e.test_secured_node import PASSWORD, secured_node
from tests.ports import free_port


def test_the_status_of_a_node_is_one_screen(api: ApiClient, node: RunningNode) -> None:
    api.post("/topics", {"name": "shown", "partitions": 2})
    done = penstock("status", variables={"PENSTOCK_HTTP": api.address})
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line for line in done.stdout.decode().splitlines()}
    assert node.ready["cluster_id"] in lines["cluster"]
    assert f"kafka {node.bootstrap}" in lines["listeners"]
    assert lines["topics"].endswith("1 with 2 partitions; 0 consumers")
    assert "healthy, 1 of 1 disks" in lines["storage"]


def test_the_status_as_json_is_what_the_api_says(api: ApiClient) -> None:
    done = penstock("status", "--http", api.address, "--check", "-o", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["cluster"]["id"] == api.get("/cluster")["id"]
    assert found["groups"][0]["state"] == "healthy"


def test_a_node_that_is_starting_is_waited_for(tmp_path: Path) -> None:
    port = free_port()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(penstock, "status", "--http", f"127.0.0.1:{port}", "--wait", "60")
        with running_node(tmp_path / "log", ["--data-dir", str(tmp_path / "data"), "--http-port", str(port)]):
            done = waiting.result()
    assert done.returncode == 0, done.stderr
    assert f"http 127.0.0.1:{port}" in done.stdout.decode()


def test_a_node_that_does_not_start_is_not_waited_for_longer_than_asked() -> None:
    done = penstock("status", "--http", "http://127.0.0.1:1", "--wait", "0.3")
    assert done.returncode == 3
    assert b"does not answer" in done.stderr


def test_disks_are_listed_and_scrubbed(api: ApiClient) -> None:
    where = {"PENSTOCK_HTTP": f"{api.host}:{api.port}"}
    listed = penstock("storage", "list", variables=where)
    assert listed.stdout.decode().splitlines()[1].split("\t")[:2] == ["00000000", "healthy"]
    assert b"scrub" in penstock("storage", "scrub", variables=where).stdout


@pytest.mark.parametrize(
    ("url", "exit_code", "words"),
    [
        ("http://127.0.0.1:1", 3, b"does not answer"),
        ("ftp://127.0.0.1", 2, b"is not the address of a node"),
        ("http://127.0.0.1:99999", 2, b"is not the address of a node"),
        ("http://127.0.0.1:1/path", 2, b"is not the address of a node"),
    ],
)
def test_an_address_that_is_none_is_said_to_be(url: str, exit_code: int, words: bytes) -> None:
    done = penstock("status", "--http", url)
    assert done.returncode == exit_code
    assert words in done.stderr


def test_a_secured_node_is_signed_in_to(tmp_path_factory: pytest.TempPathFactory) -> None:
    with secured_node(tmp_path_factory.mktemp("status"), tls=True, more=["--http-port", "0"]) as running:
        port = client_of(running).port
        where = {"PENSTOCK_HTTP": f"https://localhost:{port}", "PENSTOCK_TLS_CA": str(CERTIFICATE)}
        refused = penstock("status", variables=where)
        assert refused.returncode == 1
        assert b"requires a user; set --user NAME and --password-file FILE" in refused.stderr
        done = penstock("status", variables={**where, "PENSTOCK_USER": "admin", "PENSTOCK_PASSWORD": PASSWORD})
        assert done.returncode == 0, done.stderr
        assert b"sasl, tls" in done.stdout
        plain = penstock("status", "--http", "http://192.0.2.1:80", variables={"PENSTOCK_USER": "a", "PENSTOCK_PASSWORD": "b"})
        assert plain.returncode == 2
        assert b"without TLS" in plain.stderr
