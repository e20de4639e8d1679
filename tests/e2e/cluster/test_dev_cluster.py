"""`penstock dev-cluster`: three nodes on this machine, one of them killed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from tests.e2e.running_node import PENSTOCK, environment, penstock
from tests.ports import ports_in_a_row


def processes_of(directory: Path) -> list[str]:
    """The command lines of all processes that name a directory: nodes and etcd."""
    found: list[str] = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found += [line] if str(directory) in line else []
    return found


def test_it_serves_without_a_node_that_is_killed_and_ends_with_its_nodes(tmp_path: Path) -> None:
    kafka, http = ports_in_a_row(3), ports_in_a_row(3)
    options = ["--data-dir", str(tmp_path / "dev"), "--kafka-port", str(kafka), "--http-port", str(http), "-o", "json"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [*PENSTOCK, "dev-cluster", "--nodes", "3", *options], stdout=subprocess.PIPE, stderr=log, env=environment()
        )
    try:
        assert process.stdout is not None
        nodes = [json.loads(process.stdout.readline()) for _ in range(3)]
        assert [(node["node"], node["kafka"]) for node in nodes] == [(at + 1, f"127.0.0.1:{kafka + at}") for at in range(3)]
        told = re.search(r"penstock (node list --name dev --etcd http://\S+)", (tmp_path / "log").read_text(encoding="utf-8"))
        assert told is not None
        listed = penstock(*told[1].split(), "-o", "json")
        assert [node["name"] for node in json.loads(listed.stdout)] == ["node1", "node2", "node3"], listed.stderr
        bootstrap = ",".join(node["kafka"] for node in nodes)
        made = penstock("topic", "create", "copied", "--replication-factor", "3", "--bootstrap", bootstrap)
        assert made.returncode == 0, made.stderr
        (described,) = json.loads(penstock("topic", "describe", "copied", "-o", "json", "--bootstrap", bootstrap).stdout)
        assert [sorted(row["replicas"]) for row in described["partitions"]] == [[1, 2, 3]]
        os.kill(nodes[2]["pid"], signal.SIGKILL)
        done = penstock("produce", "t", "hello", "--bootstrap", bootstrap)
        assert done.returncode == 0, done.stderr
        process.send_signal(signal.SIGINT)
        for _ in range(10):  # more, while it stops its nodes
            time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert processes_of(tmp_path / "dev") == []
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    assert "node 3 has ended with -9" in (tmp_path / "log").read_text(encoding="utf-8")


def test_a_port_that_is_taken_is_told_and_nothing_is_left_running(tmp_path: Path) -> None:
    kafka, http = ports_in_a_row(3), ports_in_a_row(3)
    options = ("--data-dir", str(tmp_path / "dev"), "--kafka-port", str(kafka), "--http-port", str(http))
    with socket.create_server(("127.0.0.1", kafka + 2)):
        done = penstock("dev-cluster", "--nodes", "3", *options)
    assert (done.returncode, done.stdout) == (1, b""), done.stderr
    assert f"node 3 did not start: cannot listen on 127.0.0.1:{kafka + 2}: ".encode() in done.stderr
    assert processes_of(tmp_path / "dev") == []
