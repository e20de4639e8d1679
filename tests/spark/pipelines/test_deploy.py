"""Pipelines that a node keeps running: deployed, upgraded, paused and undeployed by commands."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from penstock.kafka.client import RequestRefusedError
from penstock.kafka.protocol import errors
from tests.e2e.running_node import RunningNode, running_node
from tests.spark.pipelines.command import SETTINGS
from tests.spark.reads import produce, read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SMALL = [part for setting in SETTINGS for part in ("--conf", setting)]
ON = ["--http-port", "0"]


def until(check: Callable[[], object], timeout_s: float = 300.0) -> None:
    """Wait for something to be so."""
    deadline = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def copy_file(directory: Path, name: str, source: str, more: str = "") -> Path:
    """A pipeline that copies the numbers of a topic; it names no brokers, so that they are the node's."""
    file = directory / f"{name}.yaml"
    file.write_text(
        f"pipeline: {name}\nkind: transform\n"
        f"source: {{topics: [{source}], value: {{format: json, schema: 'n BIGINT'}}}}\n"
        f"transform: {{sql: 'SELECT n FROM {source}'}}\ntarget: {{topic: {name}-out}}\n{more}"
    )
    return file


def numbers_at(bootstrap: str, topic: str, options: Mapping[str, str] | None = None) -> list[int]:
    """The numbers in a topic, as readers of committed rows see them; none if no pipeline has created it yet."""
    try:
        rows = read(bootstrap, None, subscribe=topic, **{"kafka.isolation.level": "read_committed", **(options or {})})
    except RequestRefusedError as error:
        if error.error_code != errors.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return []
    return sorted(json.loads(row["value"])["n"] for row in rows)


def numbers(node: RunningNode, topic: str) -> list[int]:
    """The numbers in a topic of a node."""
    return numbers_at(node.bootstrap, topic)


def deployed(node: RunningNode) -> dict[str, dict[str, Any]]:
    """What the node says of its deployed pipelines."""
    http = node.ready["listeners"]["http"]
    with urlopen(f"http://{http['host']}:{http['port']}/api/v1/pipelines", timeout=60) as answer:
        items = json.load(answer)["items"]
    return {item["name"]: item for item in items if item["deployment"] is not None}


def wrote(node: RunningNode, name: str, rows: int) -> Callable[[], bool]:
    """Whether a pipeline has written this many rows in its current run."""
    return lambda: (deployed(node)[name]["rows_written"] or 0) >= rows


@pytest.fixture
def own_node(tmp_path: Path) -> Iterator[RunningNode]:
    with running_node(tmp_path / "node.log", ["--data-dir", str(tmp_path / "data"), *ON]) as running:
        yield running


def test_two_pipelines_in_one_application_are_deployed_controlled_and_upgraded(own_node: RunningNode, tmp_path: Path) -> None:
    node = own_node
    for topic in ("d1", "d2"):
        node.ok("topic", "create", topic)
        produce(node.bootstrap, topic, [b'{"n": %d}' % number for number in range(100)])
    produce(node.bootstrap, "d1", [b"broken"])
    copy, other = copy_file(tmp_path, "copy", "d1"), copy_file(tmp_path, "other", "d2", "application: shared\n")
    node.ok("pipeline", "deploy", str(copy), "--application", "shared", *SMALL)
    node.ok("pipeline", "deploy", str(other), *SMALL)
    until(lambda: wrote(node, "copy", 100)() and wrote(node, "other", 100)())
    states = deployed(node)
    assert states["copy"]["deployment"]["pid"] == states["other"]["deployment"]["pid"]
    assert (states["copy"]["dead_letters"], states["copy"]["deployment"]["dead_letter_topic"]) == (1, "copy.dead")

    refused = node.run("pipeline", "deploy", str(copy_file(tmp_path, "copy", "d2")), "--application", "shared", *SMALL)
    assert refused.returncode == 1
    assert b"source.topics lacks d1, which it has read" in refused.stderr
    other_conf = node.run("pipeline", "deploy", str(other), "--conf", "spark.driver.memory=2g")
    assert b"was started by pipeline 'copy' with another --master or --conf" in other_conf.stderr

    node.ok("pipeline", "pause", "copy")
    until(lambda: deployed(node)["copy"]["deployment"]["state"] == "paused")
    # The dead letter goes back to its topic once; it is still broken.
    assert "1 dead letters were sent back" in node.ok("pipeline", "replay-dead-letters", "copy")
    assert "0 dead letters were sent back" in node.ok("pipeline", "replay-dead-letters", "copy")
    produce(node.bootstrap, "d1", [b'{"n": 100}'])
    file = copy_file(tmp_path, "copy", "d1")
    file.write_text(file.read_text().replace("SELECT n", "SELECT n + 1000 AS n"))
    node.ok("pipeline", "deploy", str(file), "--application", "shared", *SMALL)
    until(lambda: 1100 in numbers(node, "copy-out"))
    until(lambda: len(read(node.bootstrap, None, subscribe="copy.dead")) == 2)
    assert numbers(node, "copy-out") == [*range(100), 1100]
    assert "copy: " in node.ok("pipeline", "logs", "copy")
    node.ok("pipeline", "undeploy", "copy")
    node.ok("pipeline", "stop", "other")
    until(lambda: deployed(node)["other"]["deployment"]["pid"] is None)
    assert node.ok("pipeline", "list", "--deployed", "--no-headers").split("\t")[:4] == ["other", "transform", "stopped", "1"]
    assert numbers(node, "other-out") == [*range(100)]
    assert b"no pipeline 'copy' is deployed here; there are other" in node.run("pipeline", "pause", "copy").stderr


def test_a_file_that_cannot_run_is_not_deployed(own_node: RunningNode, tmp_path: Path) -> None:
    refused = own_node.run("pipeline", "deploy", str(copy_file(tmp_path, "copy", "missing")))
    assert refused.returncode == 1
    assert b"copy.yaml:3: source.topics[0]: there is no topic 'missing'" in refused.stderr
    assert deployed(own_node) == {}


def test_a_node_that_everyone_reaches_runs_no_code_of_theirs(tmp_path: Path) -> None:
    options = ["--data-dir", str(tmp_path / "data"), "--host", "0.0.0.0", "--advertised-host", "127.0.0.1", *ON]
    with running_node(tmp_path / "node.log", options) as node:
        refused = node.run("pipeline", "deploy", str(copy_file(tmp_path, "copy", "d1")))
    assert b"lets everyone in who reaches 0.0.0.0, and a pipeline can run any code here; set sasl" in refused.stderr
