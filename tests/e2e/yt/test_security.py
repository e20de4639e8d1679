"""Tokens and access rules: who may read, write, register and pull."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yt.wrapper
import yt.wrapper.driver
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from yt.wrapper.errors import YtError, YtTokenError

from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.yt.yt_clusters import wait_until
from tests.ports import free_ports

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
QUEUE, CONSUMER, TOPIC = "//tmp/queue", "//tmp/consumer", "tmp.queue"
CONFIG = {"proxy": {"retries": {"enable": False}}, "dynamic_table_retries": {"enable": False}}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    folder: Path = tmp_path_factory.mktemp("secured")
    (folder / "password").write_text("secret")
    argv = ["--data-dir", str(folder / "data"), "--yt-port", "0", "--sasl", "true"]
    with running_node(folder / "log", [*argv, "--admin-password-file", str(folder / "password")]) as running:
        yield running


def client_of(node: RunningNode, token: str | None) -> Any:
    port = node.ready["listeners"]["yt"]["port"]
    return yt.wrapper.YtClient(proxy=f"http://127.0.0.1:{port}", token=token, config=CONFIG)


@pytest.fixture(scope="module")
def admin(node: RunningNode) -> Any:
    client = client_of(node, "admin:secret")
    client.create("table", QUEUE, attributes={"dynamic": True, "schema": [{"name": "data", "type": "string"}]})
    client.mount_table(QUEUE)
    client.create("queue_consumer", CONSUMER)
    client.insert_rows(QUEUE, [{"data": "a"}])
    return client


def admit(node: RunningNode, user: str, *rights: tuple[ResourceType, str, AclOperation]) -> None:
    """Give a user a password and rights."""
    settings = {"bootstrap.servers": node.bootstrap, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    kafka = AdminClient({**settings, "sasl.username": "admin", "sasl.password": "secret"})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    for done in kafka.alter_user_scram_credentials([UserScramCredentialUpsertion(user, info, b"pass")]).values():
        done.result(20)
    rules = [
        AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
        for kind, name, operation in rights
    ]
    if rules:
        for made in kafka.create_acls(rules).values():
            made.result(20)


@pytest.fixture(scope="module")
def anna(node: RunningNode, admin: Any) -> Any:
    admit(node, "anna", (ResourceType.GROUP, CONSUMER, AclOperation.READ))
    return client_of(node, "anna:pass")


def refused(call: Any) -> None:
    with pytest.raises(YtError) as caught:
        call()
    assert caught.value.contains_code(901), str(caught.value)


def hidden(call: Any) -> str:
    """That it is answered as if there were nothing; what was said."""
    with pytest.raises(YtError) as caught:
        call()
    assert caught.value.contains_code(500), str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("token", [None, "anna:wrong", "stranger:secret", "admin"])
def test_without_a_right_token_nothing_is_answered(node: RunningNode, admin: Any, token: str | None) -> None:
    with pytest.raises(YtTokenError):
        client_of(node, token or "none").get("//tmp")


def test_a_consumer_reads_what_its_user_may_not_read_otherwise(admin: Any, anna: Any) -> None:
    hidden(lambda: list(anna.pull_queue(QUEUE, offset=0, partition_index=0)))
    hidden(lambda: anna.insert_rows(QUEUE, [{"data": "b"}]))
    hidden(lambda: anna.register_queue_consumer(QUEUE, CONSUMER, vital=False))
    hidden(lambda: anna.set(f"{QUEUE}/@auto_trim_config", {"enable": True}))
    hidden(lambda: anna.remove(QUEUE))
    hidden(lambda: anna.advance_consumer(CONSUMER, QUEUE, partition_index=0, old_offset=0, new_offset=1))
    admin.register_queue_consumer(QUEUE, CONSUMER, vital=True)
    rows = anna.pull_consumer(CONSUMER, QUEUE, offset=0, partition_index=0)
    assert [row["data"] for row in rows] == ["a"]
    anna.advance_consumer(CONSUMER, QUEUE, partition_index=0, old_offset=0, new_offset=1)
    anna.unregister_queue_consumer(QUEUE, CONSUMER)


def test_what_a_user_may_not_describe_is_not_there(node: RunningNode, admin: Any, anna: Any) -> None:
    admin.create("table", "//tmp/payroll", attributes={"dynamic": True, "schema": [{"name": "data", "type": "string"}]})
    admin.create("map_node", "//tmp/folder", ignore_existing=True)
    admin.create("table", "//tmp/folder/salaries", attributes={"dynamic": True, "schema": [{"name": "data", "type": "string"}]})
    admin.register_queue_consumer("//tmp/payroll", CONSUMER, vital=False)
    admin.register_queue_consumer("//tmp/folder/salaries", "//groups/secret", vital=False)
    assert "payroll" in admin.list("//tmp")
    assert "payroll" not in anna.list("//tmp")
    assert anna.list("//tmp/folder") == []
    assert "payroll" not in str(anna.get("//tmp"))
    assert "tmp.payroll" not in str(anna.get("//"))
    assert anna.exists("//tmp")
    assert not anna.exists("//tmp/payroll")
    assert not anna.exists("//tmp/payroll/@id")
    assert not anna.exists(f"#{admin.get('//tmp/payroll/@id')}")
    # Her own consumer tells her what it is registered at; of others she learns nothing.
    shown = [str(one["queue_path"]) for one in anna.list_queue_consumer_registrations()]
    assert shown == ["//tmp/payroll"]
    for path in ("//tmp/payroll", "//topics/orders", "//tmp/folder/salaries"):
        there = hidden(lambda path=path: anna.get(f"{path}/@row_count"))
        absent = hidden(lambda path=path: anna.get(f"{path}x/@row_count"))
        assert f"there is no node {path} that" in there
        assert f"there is no node {path}x that" in absent
        hidden(lambda path=path: anna.mount_table(path))
    with pytest.raises(YtError) as caught:
        anna.remove("//tmp/folder", recursive=True)
    assert "salaries" not in str(caught.value)
    # To end a registration takes a right, whether its objects are there or not.
    for queue in ("//tmp/folder/salaries", "//tmp/nothing"):
        refused(lambda queue=queue: anna.unregister_queue_consumer(queue, "//groups/secret"))
    for queue, consumer in (("//tmp/payroll", CONSUMER), ("//tmp/folder/salaries", "//groups/secret")):
        admin.unregister_queue_consumer(queue, consumer)


def test_registering_needs_the_right_that_fits(node: RunningNode, admin: Any, anna: Any) -> None:
    topic = str(admin.get(f"{QUEUE}/@topic"))
    for name, operation in (("reader", AclOperation.READ), ("owner", AclOperation.ALTER)):
        admit(node, name, (ResourceType.GROUP, CONSUMER, AclOperation.READ), (ResourceType.TOPIC, topic, operation))
    reader, owner = client_of(node, "reader:pass"), client_of(node, "owner:pass")
    refused(lambda: reader.register_queue_consumer(QUEUE, CONSUMER, vital=True))
    reader.register_queue_consumer(QUEUE, CONSUMER, vital=False)
    # Who may register a vital consumer may register any.
    owner.register_queue_consumer(QUEUE, CONSUMER, vital=True)
    owner.register_queue_consumer(QUEUE, CONSUMER, vital=False)
    owner.unregister_queue_consumer(QUEUE, CONSUMER)


def test_an_exported_table_is_for_those_who_may_read_its_queue(node: RunningNode, admin: Any, anna: Any) -> None:
    admit(node, "analyst", (ResourceType.TOPIC, str(admin.get(f"{QUEUE}/@topic")), AclOperation.READ))
    admin.create("map_node", "//tmp/secret_exports")
    export = {"export_directory": "//tmp/secret_exports", "export_period": 1000}
    hidden(lambda: anna.set(f"{QUEUE}/@static_export_config", {"main": export}))
    admin.set(f"{QUEUE}/@static_export_config", {"main": export})
    wait_until(lambda: len(admin.list("//tmp/secret_exports")) > 0)
    table = f"//tmp/secret_exports/{admin.list('//tmp/secret_exports')[0]}"
    assert [row["data"] for row in client_of(node, "analyst:pass").read_table(table)] == ["a"]
    hidden(lambda: list(anna.read_table(table)))
    assert anna.list("//tmp/secret_exports") == []
    refused(lambda: client_of(node, "analyst:pass").remove(table))
    admin.remove(f"{QUEUE}/@static_export_config")


def test_between_clusters_each_checks_its_own_side(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret")
    (tmp_path / "token").write_text("peer:pass\n")
    ports = dict(zip(("pythia", "hume"), free_ports(2), strict=True))
    with ExitStack() as stack:
        nodes: dict[str, RunningNode] = {}
        for name, port in ports.items():
            other = next(each for each in ports if each != name)
            argv = ["--data-dir", str(tmp_path / name), "--yt-port", str(port), "--cluster-name", name, "--sasl", "true"]
            argv += ["--peer-cluster", f"{other}=http://127.0.0.1:{ports[other]}", "--peer-token-file", str(tmp_path / "token")]
            argv += ["--admin-password-file", str(tmp_path / "password")]
            nodes[name] = stack.enter_context(running_node(tmp_path / f"{name}.log", argv))
            admit(nodes[name], "peer", (ResourceType.BROKER, "kafka-cluster", AclOperation.CLUSTER_ACTION))
        admit(nodes["hume"], "anna", (ResourceType.GROUP, CONSUMER, AclOperation.READ))
        admit(nodes["pythia"], "anna")
        pythia = client_of(nodes["pythia"], "admin:secret")
        pythia.create("table", QUEUE, attributes={"dynamic": True, "schema": [{"name": "data", "type": "string"}]})
        pythia.mount_table(QUEUE)
        pythia.insert_rows(QUEUE, [{"data": "a"}, {"data": "b"}])
        client_of(nodes["hume"], "admin:secret").create("queue_consumer", CONSUMER)
        anna = client_of(nodes["hume"], "anna:pass")
        remote = f"<cluster=pythia>{QUEUE}"
        # Her rights on hume are of no use on pythia, whatever she says.
        hidden(lambda: anna.register_queue_consumer(remote, CONSUMER, vital=False))
        forged = {"queue_path": remote, "consumer_path": CONSUMER, "vital": False, "penstock_forwarded": True}
        refused(lambda: yt.wrapper.driver.make_request("register_queue_consumer", forged, client=anna))
        refused(lambda: list(anna.pull_consumer(CONSUMER, remote, offset=0, partition_index=0)))
        client_of(nodes["hume"], "admin:secret").register_queue_consumer(remote, CONSUMER, vital=True)
        rows = anna.pull_consumer(CONSUMER, remote, offset=0, partition_index=0)
        assert [row["data"] for row in rows] == ["a", "b"]
        anna.advance_consumer(CONSUMER, remote, partition_index=0, old_offset=0, new_offset=1)
        pythia.set(f"{QUEUE}/@auto_trim_config", {"enable": True})
        wait_until(lambda: bool(pythia.get(f"{QUEUE}/@queue_partitions/0/lower_row_index") == 1))
        anna.unregister_queue_consumer(remote, CONSUMER)
        assert pythia.list_queue_consumer_registrations(queue_path=QUEUE) == []
