"""`penstock group` on groups of both kinds. A process for each command would take most of the time, so most run in this one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka
import pytest

from penstock.broker import BrokerOptions
from penstock.broker.groups import ConsumerGroupOptions
from penstock.cli.main import main
from tests.e2e.kafka.running_gateway import RunningGateway
from tests.e2e.running_node import penstock

KINDS = ["classic", "consumer"]
WAIT_S = 20.0


class Commands:
    """Runs commands against a gateway, as the shell would, and gives what they print."""

    def __init__(self, gateway: RunningGateway, capture: pytest.CaptureFixture[str]) -> None:
        self.bootstrap = gateway.bootstrap
        self._capture = capture

    def run(self, *argv: str) -> tuple[int, str, str]:
        """The exit code, standard output and standard error."""
        self._capture.readouterr()
        try:
            exit_code = main([*argv, "--bootstrap", self.bootstrap])
        except SystemExit as ended:
            exit_code = int(str(ended.code))
        return exit_code, *self._capture.readouterr()

    def ok(self, *argv: str) -> str:
        """What a command prints that must succeed."""
        exit_code, out, err = self.run(*argv)
        assert exit_code == 0, (argv, out, err)
        return out

    def refused(self, *argv: str, exit_code: int = 1) -> str:
        """What a command says that does not do what was asked."""
        code, out, err = self.run("group", *argv)
        assert code == exit_code, (argv, out, err)
        return err

    def described(self, name: str) -> Any:
        """A group as `describe` shows it."""
        (group,) = json.loads(self.ok("group", "describe", name, "-o", "json"))
        return group


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    options = BrokerOptions(consumer_groups=ConsumerGroupOptions(heartbeat_interval_ms=200))
    with RunningGateway(tmp_path_factory.mktemp("gateway"), broker_options=options) as running:
        yield running


@pytest.fixture
def node(gateway: RunningGateway, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(gateway, capsys)


@pytest.fixture
def name(node: Commands, request: pytest.FixtureRequest) -> str:
    """A name for a group and a topic of two partitions with ten messages in the first."""
    made = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    node.ok("topic", "create", made, "--partitions", "2")
    node.ok("produce", made, "-p", "0", *["x"] * 10)
    return made


@contextmanager
def member(node: Commands, name: str, kind: str, count: int) -> Iterator[str]:
    """A member that has read and committed so many messages, and stays; its id."""
    settings = {"bootstrap.servers": node.bootstrap, "group.id": name, "group.protocol": kind, "client.id": "reader"}
    consumer = confluent_kafka.Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    try:
        consumer.subscribe([name])
        deadline = time.monotonic() + WAIT_S
        read = 0
        while read < count or len(consumer.assignment()) < 2:
            assert time.monotonic() < deadline
            message = consumer.poll(0.1)
            if message is not None and message.error() is None and read < count:
                read += 1
                consumer.commit(message=message, asynchronous=False)
        yield consumer.memberid()
    finally:
        consumer.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_is_listed_and_described_with_its_lag(node: Commands, name: str, kind: str) -> None:
    with member(node, name, kind, 4) as member_id:
        assert f"{name}\t{kind}\tStable\t6\n" in node.ok("group", "list")
        assert json.loads(node.ok("group", "list", "--prefix", name, "--kind", kind, "--state", "stable", "-o", "json")) == [
            {"name": name, "kind": kind, "state": "Stable", "lag": 6}
        ]
        group = node.described(name)
        assert (group["kind"], group["state"], group["lag"]) == (kind, "Stable", 6)
        (described,) = group["members"]
        assert (described["id"], described["client_id"], described["host"]) == (member_id, "reader", "127.0.0.1")
        assert [one["partition"] for one in described["partitions"]] == [0, 1]
        first, second = group["positions"]
        assert (first["position"], first["end"], first["lag"], first["member"]) == (4, 10, 6, member_id)
        assert 0 < first["lag_s"] < 600
        assert (second["position"], second["end"], second["lag"]) == (None, 0, None)
        plain = node.ok("group", "describe", name, "--no-headers").splitlines()
        assert plain[0].split("\t")[:4] == ["group", name, kind, "Stable"]
        assert plain[1].split("\t") == ["member", member_id, "", "reader", "127.0.0.1", "2"]
        assert plain[2].split("\t")[:6] == ["position", name, "0", "4", "10", "6"]
    group = node.described(name)
    assert (group["state"], group["members"], group["lag"]) == ("Empty", [], 6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_with_members_is_neither_reset_nor_deleted(node: Commands, name: str, kind: str) -> None:
    with member(node, name, kind, 1):
        assert "stop them first" in node.refused("reset", name, "--to", "earliest", "--yes")
        assert "it has members; stop them first" in node.refused("delete", name, "--yes")
    assert node.ok("group", "delete", name, "--yes") == f"deleted group {name}\n"
    assert "there is no such group" in node.refused("delete", name, "--yes")
    assert node.ok("group", "delete", name, "--if-exists") == f"there is no group {name}\n"
    assert "there is no such group" in node.refused("describe", name)


def test_a_reset_is_shown_first_and_done_when_told(node: Commands, name: str) -> None:
    with member(node, name, "consumer", 4):
        pass
    exit_code, shown, said = node.run("group", "reset", name, "--to", "earliest")
    assert (exit_code, shown) == (0, f"TOPIC\tPARTITION\tWAS\tTO\n{name}\t0\t4\t0\n")
    assert "nothing was changed; add --yes" in said
    assert node.described(name)["positions"][0]["position"] == 4
    done = json.loads(node.ok("group", "reset", name, "--to", "latest", "--yes", "-o", "json"))
    assert done == {"group": name, "done": True, "positions": [{"topic": name, "partition": 0, "was": 4, "to": 10}]}
    group = node.described(name)
    assert [(one["position"], one["lag"], one["lag_s"]) for one in group["positions"]] == [(10, 0, 0.0)]


@pytest.mark.parametrize(
    ("where", "to"),
    [
        (["--to", "7"], 7),
        (["--to", "99"], 10),
        (["--to", "1h"], 0),
        (["--to", "2001-01-01T00:00:00Z"], 0),
        (["--to", "2999-01-01T00:00:00Z"], 10),
        (["--shift", "3"], 7),
        (["--shift=-1"], 3),
        (["--shift=-100"], 0),
        (["--shift", "100"], 10),
    ],
)
def test_positions_can_be_named_in_many_ways(node: Commands, name: str, where: list[str], to: int) -> None:
    node.ok("group", "reset", name, "--topic", name, "--partition", "0", "--to", "4", "--yes")
    node.ok("group", "reset", name, *where, "--yes")
    assert [(one["partition"], one["position"]) for one in node.described(name)["positions"]] == [(0, to)]


def test_a_position_below_what_was_trimmed_counts_from_there(node: Commands, name: str) -> None:
    node.ok("group", "reset", name, "--topic", name, "--to", "earliest", "--yes")
    node.ok("topic", "trim", name, "--before", "3", "--partition", "0", "--yes")
    first = node.described(name)["positions"][0]
    assert (first["position"], first["end"], first["lag"]) == (0, 10, 7)


def test_a_new_group_can_be_given_positions(node: Commands, name: str) -> None:
    assert "has no committed offsets" in node.refused("reset", name, "--to", "latest")
    done = node.ok("group", "reset", name, "--topic", name, "--to", "latest", "--yes", "--no-headers")
    assert done == f"{name}\t0\t\t10\n{name}\t1\t\t0\n"
    assert f"{name}\tclassic\tEmpty\t0\n" in node.ok("group", "list")


def test_wrong_usage_is_told(node: Commands, name: str) -> None:
    node.ok("group", "reset", name, "--topic", name, "--partition", "0", "--to", "1", "--yes")
    assert "not 7" in node.refused("reset", name, "--partition", "7", "--to", "latest", exit_code=2)
    assert "there is no topic 'absent'" in node.refused("reset", name, "--topic", "absent", "--to", "latest")
    assert "no committed offset to shift" in node.refused("reset", name, "--partition", "1", "--shift", "1")
    assert "not allowed with" in node.refused("reset", name, "--to", "latest", "--shift", "1", exit_code=2)
    assert "invalid position value" in node.refused("reset", name, "--to", "soon", exit_code=2)
    assert "a consumer's name has 1 to 1000 bytes" in node.refused("describe", "")


def test_it_is_a_command_like_the_others(node: Commands, name: str) -> None:
    node.ok("group", "reset", name, "--topic", name, "--to", "earliest", "--yes")
    done = penstock("group", "list", "--prefix", name, variables={"PENSTOCK_BOOTSTRAP": node.bootstrap})
    assert (done.returncode, done.stdout) == (0, f"NAME\tKIND\tSTATE\tLAG\n{name}\tclassic\tEmpty\t10\n".encode())
