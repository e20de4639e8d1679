"""`penstock cluster` against a real etcd."""

from __future__ import annotations

import asyncio
import json
import random
from itertools import count

import pytest

from penstock.cli.main import main
from penstock.coordination import Coordination, EtcdOptions, cluster_prefix, connect_etcd
from tests.e2e.coordination.etcd_process import EtcdCluster
from tests.e2e.coordination.nodes import record, until
from tests.e2e.running_node import penstock
from tests.ports import free_port

_serial = count()


class Command:
    """Runs `penstock cluster` in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *argv: str) -> tuple[int, str, str]:
        code = main(["cluster", *argv])
        printed = self._capsys.readouterr()
        return code, printed.out, printed.err


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    """The command."""
    return Command(capsys)


def test_a_cluster_is_created_once_and_not_changed_by_a_second_time(
    etcd: EtcdCluster, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_ETCD", ",".join(etcd.urls))
    name = f"command-{next(_serial)}"
    code, _, errors = run("show", "--name", name)
    assert (code, "penstock cluster init" in errors) == (1, True)
    code, out, errors = run("init", "--name", name, "-o", "json")
    assert code == 0, errors
    created = json.loads(out)
    assert created["created"]
    code, out, _ = run("init", "--name", name, "-o", "json")
    assert (code, json.loads(out)) == (0, {**created, "created": False})
    code, _, errors = run("init", "--name", name, "--kind", "block-4-2")
    assert (code, f"cluster {name} of kind mirror-3 exists" in errors) == (1, True)
    code, out, _ = run("show", "--name", name)
    assert (code, created["cluster_id"] in out, "no node is running" in out) == (0, True, True)


def test_show_lists_members_and_the_leader(etcd: EtcdCluster, run: Command) -> None:
    name = f"command-{next(_serial)}"
    etcd_option = ("--etcd", ",".join(etcd.urls))
    code, out, _ = run("init", "--name", name, *etcd_option)
    assert (code, f"cluster {name} created" in out) == (0, True)

    async def test() -> bytes:
        node = Coordination(connect_etcd(EtcdOptions(etcd.urls, cluster_prefix(name)), random.Random(1)))
        await node.open()
        await node.register(record(7), 30.0)
        node.campaign()
        await until(lambda: node.leadership is not None)
        done = await asyncio.to_thread(penstock, "cluster", "show", "--name", name, "-o", "json", *etcd_option)
        await node.close()
        assert done.returncode == 0, done.stderr
        return done.stdout

    shown = json.loads(asyncio.run(test()))
    assert (shown["leader"], [member["name"] for member in shown["members"]]) == (7, ["node-7"])


def test_wrong_options_and_an_etcd_that_is_away_are_told(run: Command) -> None:
    for argv, code, text in (
        (("init", "--name", "c"), 2, "give --etcd http://HOST:2379, or set PENSTOCK_ETCD"),
        (("init", "--name", "a/b", "--etcd", "http://127.0.0.1:1"), 2, "cannot be the name of a cluster"),
        (("init", "--name", "c", "--etcd", "127.0.0.1:1"), 2, "addresses of the form http://host:port"),
        (("init", "--name", "c", "--etcd", "http://127.0.0.1:1", "--etcd-user", "u"), 2, "needs a password"),
        (("init", "--name", "c", "--etcd", f"http://127.0.0.1:{free_port()}"), 3, "got no answer within 2 s"),
    ):
        told = run(*argv)
        assert (told[0], text in told[2]) == (code, True), told
