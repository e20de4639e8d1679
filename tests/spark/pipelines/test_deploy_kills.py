"""Deployed pipelines while drivers and nodes are killed: every row is in the target once, on a node with SASL, also after an
order to start over, and in a cluster whose leader dies."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from tests.e2e.cluster.running_cluster import running_cluster
from tests.e2e.running_node import RunningNode, penstock, running_node
from tests.ports import free_ports
from tests.spark.pipelines.test_deploy import ON, SMALL, copy_file, deployed, numbers, numbers_at, until
from tests.spark.reads import produce

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

PASSWORD = "open, sesame=1"
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "admin", "sasl.password": PASSWORD}
OPTIONS = (
    "options: {kafka.security.protocol: SASL_PLAINTEXT, kafka.sasl.mechanism: PLAIN, kafka.sasl.username: admin, "
    "kafka.sasl.password: '${file:password}'}\n"
)


def kill_driver(node: RunningNode) -> bool:
    """kill -9 of the driver, if the node has started one yet."""
    copy = deployed(node).get("copy")  # a node that has just started may not have read its deployments
    pid = copy and copy["deployment"]["pid"]
    if pid:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(pid)


def test_kills_of_driver_and_node_lose_and_repeat_nothing(tmp_path: Path) -> None:
    chance = random.Random(int(os.environ.get("SOAK_SEED", "0")) or time.time_ns())
    ends = time.monotonic() + float(os.environ.get("SOAK_S", "600"))
    options = ["--data-dir", str(tmp_path / "data"), *ON]
    written = kills = 0
    is_deployed = False
    while time.monotonic() < ends or not is_deployed:
        with running_node(tmp_path / "node.log", options) as node:
            if not is_deployed:
                node.ok("topic", "create", "d1", "--partitions", "2")
                for name in ("copy", "other"):
                    file = copy_file(tmp_path, name, "d1", "application: shared\nbatch: {rows_max: 500}\n")
                    node.ok("pipeline", "deploy", str(file), *SMALL)
                is_deployed = True
            for _ in range(chance.randint(1, 3)):
                for _ in range(chance.randint(1, 20)):
                    numbered = (b'{"n": %d}' % (written + at) for at in range(200))
                    produce(node.bootstrap, "d1", [*numbered], partition=written // 200 % 2)
                    written += 200
                    time.sleep(chance.random())
                kills += kill_driver(node)
            time.sleep(chance.random() * 30)
            node.process.send_signal(signal.SIGKILL)
            node.process.wait()
            kills += 1
    with running_node(tmp_path / "node.log", options) as node:
        until(lambda: len(numbers(node, "copy-out")) >= written and len(numbers(node, "other-out")) >= written, 600.0)
        assert numbers(node, "copy-out") == numbers(node, "other-out") == [*range(written)], (kills, written)


class SecuredNode:
    """A node with SASL that is killed and started again, with what it is asked and told."""

    def __init__(self, directory: Path) -> None:
        self._password = directory / "password"
        self._password.write_text(PASSWORD)
        self._log = directory / "node.log"
        kafka, http = map(str, free_ports(2))
        self._argv = ["--data-dir", str(directory / "data"), "--kafka-port", kafka, "--http-port", http, "--sasl", "true"]
        self.bootstrap = f"127.0.0.1:{kafka}"

    def running(self) -> Any:
        """The node, until the end of the block."""
        return running_node(self._log, [*self._argv, "--admin-password-file", str(self._password)])

    def ok(self, *argv: str) -> str:
        """Run a command that must succeed, as the admin."""
        variables = {"PENSTOCK_BOOTSTRAP": self.bootstrap, "PENSTOCK_USER": "admin", "PENSTOCK_PASSWORD": PASSWORD}
        done = penstock(*argv, timeout=180, variables=variables)
        assert done.returncode == 0, (argv, done.stdout, done.stderr)
        return done.stdout.decode()

    def produce(self, values: Sequence[int]) -> None:
        """Numbers to the topic."""
        producer = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap, **SASL})
        for value in values:
            producer.produce("d1", b'{"n": %d}' % value)
        assert producer.flush(60) == 0

    def numbers(self) -> list[int]:
        """The numbers in the target, as readers of committed rows see them."""
        return numbers_at(self.bootstrap, "copy-out", {f"kafka.{name}": value for name, value in SASL.items()})

    def driver(self) -> int | None:
        """The process of the driver."""
        [copy] = json.loads(self.ok("pipeline", "list", "--deployed", "-o", "json"))
        pid: int | None = copy["deployment"]["pid"]
        return pid


def test_a_node_with_sasl_keeps_a_pipeline_over_kills_and_starts_it_over_when_asked(tmp_path: Path) -> None:
    secured = SecuredNode(tmp_path)
    file = copy_file(tmp_path, "copy", "d1", OPTIONS)
    with secured.running() as node:
        secured.ok("topic", "create", "d1", "--partitions", "2")
        secured.produce(range(500))
        secured.ok("pipeline", "deploy", str(file), *SMALL)
        until(lambda: len(secured.numbers()) == 500)
        pid = secured.driver()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        secured.produce(range(500, 1000))
        until(lambda: len(secured.numbers()) == 1000)
        node.kill()
    with secured.running():
        secured.produce(range(1000, 1500))
        until(lambda: len(secured.numbers()) >= 1500)
        assert secured.numbers() == [*range(1500)]
        # It reads everything again from the start; what it has written before stays.
        secured.ok("pipeline", "deploy", str(file), "--reset", *SMALL)
        until(lambda: len(secured.numbers()) >= 3000)
        time.sleep(5)
        assert secured.numbers() == sorted([*range(1500)] * 2)
        assert PASSWORD not in secured.ok("pipeline", "logs", "copy")


def test_a_pipeline_moves_to_the_node_that_takes_over_the_lead(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        cluster.use("topic", "create", "d1", "--partitions", "2")
        produce(cluster.bootstrap, "d1", [b'{"n": %d}' % number for number in range(500)])
        cluster.use("pipeline", "deploy", str(copy_file(tmp_path, "copy", "d1")), *SMALL)
        until(lambda: len(numbers_at(cluster.bootstrap, "copy-out")) == 500)
        for round_ in (1, 2):
            dead = cluster.active()
            cluster.kill(dead)
            first = 500 * round_
            cluster.active(120)
            produce(cluster.bootstrap, "d1", [b'{"n": %d}' % number for number in range(first, first + 500)], partition=1)
            until(lambda first=first: len(numbers_at(cluster.bootstrap, "copy-out")) >= first + 500)  # type: ignore[misc] # bound now
            assert numbers_at(cluster.bootstrap, "copy-out") == [*range(first + 500)]
            cluster.start(dead)
            cluster.wait_ready(dead, 300)
