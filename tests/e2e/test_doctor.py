"""`penstock doctor` on this machine, and in the trouble it is for."""

from __future__ import annotations

import json
import os
import socket
import sys
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.doctor_network import _table_address
from tests.e2e.running_node import penstock, running_node

NO_PORTS = {"PENSTOCK_KAFKA_PORT": "none", "PENSTOCK_HTTP_PORT": "none"}


def _examine(tmp_path: Path, *argv: str, **variables: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and the findings by name."""
    done = penstock(
        "doctor", "-o", "json", "--data-dir", str(tmp_path / "data"), *argv, cwd=tmp_path, variables={**NO_PORTS, **variables}
    )
    findings = json.loads(done.stdout)["findings"]
    return done.returncode, {finding["name"]: finding for finding in findings}


def test_a_machine_that_runs_the_tests_is_fit_for_a_node(tmp_path: Path) -> None:
    code, found = _examine(tmp_path)
    failed = [finding for finding in found.values() if finding["status"] == "fail"]
    assert (code, failed) == (0, [])
    for name in (
        "python",
        "penstock",
        "kernels",
        "extra spark",
        "java",
        "data directory",
        "lock",
        "space",
        "file system",
        "sync",
    ):
        assert found[name]["found"], name
    for name in ("clock", "time service", "open files", "memory", "processors", "host name", "node"):
        assert found[name]["found"], name
    assert not (tmp_path / "data").exists(), "a look must not leave anything behind"


def test_it_speaks_in_lines_to_a_person(tmp_path: Path) -> None:
    done = penstock("doctor", cwd=tmp_path, variables=NO_PORTS)
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 0
    assert all(line.split()[0] in ("ok", "warn") for line in lines[:-2])
    assert lines[-1].endswith("0 failed")


def test_a_taken_port_is_told_with_whose_it_is(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        _, found = _examine(tmp_path, PENSTOCK_KAFKA_PORT=port)
    assert found["kafka_port"]["status"] == "warn"
    assert f"process {os.getpid()}" in found["kafka_port"]["found"]
    assert "--kafka-port" in found["kafka_port"]["advice"]


def test_whoever_has_the_port_of_another_address_is_not_blamed(tmp_path: Path) -> None:
    with socket.socket() as ours, socket.socket() as other:
        ours.bind(("127.0.0.1", 0))
        port = ours.getsockname()[1]
        ours.close()
        other.bind(("127.0.0.2", port))
        other.listen()
        _, found = _examine(tmp_path, PENSTOCK_KAFKA_PORT=str(port))
    assert found["kafka_port"]["found"] == f"{port} is free"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0100007F", "127.0.0.1"),
        ("00000000", "0.0.0.0"),
        ("0000000000000000FFFF00000100007F", "127.0.0.1"),
        ("00000000000000000000000001000000", "::1"),
    ],
)
@pytest.mark.skipif(sys.byteorder != "little", reason="the table is written as the processor has it")
def test_addresses_of_the_kernels_table_are_read(text: str, address: str) -> None:
    assert _table_address(text) == ip_address(address)


def test_a_running_node_is_recognised(tmp_path: Path) -> None:
    with running_node(tmp_path / "log", ["--data-dir", str(tmp_path / "data"), "--http-port", "0"]) as node:
        node.ok("topic", "create", "clicks")
        port, http_port = (str(node.ready["listeners"][name]["port"]) for name in ("kafka", "http"))
        code, found = _examine(tmp_path, "--bootstrap", node.bootstrap, PENSTOCK_KAFKA_PORT=port, PENSTOCK_HTTP_PORT=http_port)
    assert code == 0
    assert "running node" in found["kafka_port"]["found"]
    assert "running node" in found["http_port"]["found"]
    assert found["readiness"]["status"] == "ok"
    assert "a running node uses" in found["lock"]["found"]
    assert node.ready["cluster_id"] in found["node"]["found"]
    assert "1 topic" in found["node"]["found"]


def test_a_node_that_was_named_and_does_not_answer_is_a_failure(tmp_path: Path) -> None:
    code, found = _examine(tmp_path, "--bootstrap", "127.0.0.1:1")
    assert (code, found["node"]["status"]) == (1, "fail")


def test_a_bad_setting_is_a_failure_and_the_rest_is_still_looked_at(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text("kafka_prot = 1\n")
    done = penstock("doctor", "-o", "json", cwd=tmp_path)
    found = {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert done.returncode == 1
    assert "kafka_port" in found["configuration"]["found"]
    assert found["python"]["status"] == "ok"


@pytest.mark.parametrize(("setting", "value", "name"), [("advertised_host", "no-such-host.invalid", "host name")])
def test_what_clients_cannot_find_is_a_failure(tmp_path: Path, setting: str, value: str, name: str) -> None:
    code, found = _examine(tmp_path, **{f"PENSTOCK_{setting.upper()}": value})
    assert (code, found[name]["status"]) == (1, "fail")
    assert setting in found[name]["advice"]


def test_a_file_in_the_place_of_the_data_directory_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a directory")
    code, found = _examine(tmp_path)
    assert (code, found["data directory"]["status"]) == (1, "fail")
