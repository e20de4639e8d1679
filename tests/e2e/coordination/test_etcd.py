"""etcd itself: TLS, users, no space, and an etcd that is empty or an old copy."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.coordination import (
    CompactedError,
    Compare,
    Coordination,
    CoordinationRefusedError,
    CoordinationUnavailableError,
    EtcdOptions,
    KeyStore,
    NoClusterError,
    Outcome,
    Put,
    RolledBackError,
    StoreState,
    cluster_prefix,
    connect_etcd,
)
from penstock.core.errors import ClosedError, ConfigError, OutOfSpaceError
from tests.e2e.coordination.etcd_process import EtcdCluster, running_etcd
from tests.e2e.coordination.nodes import IDENTITY, record, until
from tests.e2e.kafka.secured import CERTIFICATE, KEY
from tests.ports import free_port

PREFIX = cluster_prefix("own")


@pytest.fixture
def own(tmp_path: Path) -> Iterator[EtcdCluster]:
    """An etcd that a test may stop and empty."""
    with running_etcd(tmp_path) as cluster:
        yield cluster


def connect(etcd: EtcdCluster, prefix: str = PREFIX, **settings: object) -> KeyStore:
    options = EtcdOptions(etcd.urls, prefix, **settings)  # type: ignore[arg-type]
    return connect_etcd(options, random.Random(1))


async def refused(store: KeyStore, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        await store.get("a")
    await store.close()


def test_tls_with_a_certificate_of_the_client(tmp_path: Path) -> None:
    files = ("--cert-file", str(CERTIFICATE), "--key-file", str(KEY), "--trusted-ca-file", str(CERTIFICATE), "--client-cert-auth")
    cluster = EtcdCluster(tmp_path, 1, scheme="https", options=files)
    cluster.ctl_options = ("--cacert", str(CERTIFICATE), "--cert", str(CERTIFICATE), "--key", str(KEY))

    async def test() -> None:
        store = connect(cluster, ca_file=CERTIFICATE, cert_file=CERTIFICATE, key_file=KEY)
        result = await store.commit([Compare("a", 0)], [Put("a", b"1")])
        assert result.outcome is Outcome.DONE
        watch = store.watch("", result.revision - 1)
        assert [event.key for event in await anext(watch)] == ["a"]
        await watch.aclose()
        lease = await store.grant(60)
        assert await store.renew(lease.id, 1.0) == 60
        await store.close()
        await refused(connect(cluster, ca_file=CERTIFICATE), CoordinationRefusedError, "BAD_CERTIFICATE.*check its user")
        unknown_ca = connect(cluster, cert_file=CERTIFICATE, key_file=KEY)
        await refused(unknown_ca, CoordinationRefusedError, "VERIFY_FAILED.*check its user")
        missing = connect(cluster, ca_file=tmp_path / "none.pem")
        await refused(missing, ConfigError, "none.pem, which is needed to reach etcd: No such file")

    try:
        cluster.start()
        asyncio.run(test())
    finally:
        cluster.stop()


def test_a_user_with_rights_to_one_prefix(own: EtcdCluster) -> None:
    for command in (
        ("user", "add", "root:root-password"),
        ("user", "grant-role", "root", "root"),
        ("role", "add", "penstock"),
        ("role", "grant-permission", "--prefix", "penstock", "readwrite", PREFIX),
        ("user", "add", "node:node-password"),
        ("user", "grant-role", "node", "penstock"),
        ("auth", "enable"),
    ):
        own.run(*command)

    async def test() -> None:
        store = connect(own, user="node", password="node-password")
        node = Coordination(store)
        await node.create_cluster(IDENTITY)
        await node.open()
        await node.register(record(1), 5.0)
        node.campaign()
        await until(lambda: node.leadership is not None)
        assert (await node.change_group(1, b"1", 0)).outcome is Outcome.DONE
        await until(lambda: len(node.groups()) == 1)
        # A token that has ended is replaced, whatever is asked next.
        store._connection._token = "ended.1"  # type: ignore[attr-defined]
        assert (await node.change_group(2, b"1", 0)).outcome is Outcome.DONE
        await until(lambda: len(node.groups()) == 2)
        await node.close()
        await refused(connect(own, user="node", password="wrong"), CoordinationRefusedError, "check its user, password")
        await refused(connect(own), CoordinationRefusedError, "check its user, password")
        another = connect(own, cluster_prefix("another"), user="node", password="node-password")
        await refused(another, CoordinationRefusedError, "permission denied")

    asyncio.run(test())


def test_an_etcd_without_space_says_so_and_what_exists_goes_on(tmp_path: Path) -> None:
    async def test(cluster: EtcdCluster) -> None:
        node = Coordination(connect(cluster))
        await node.create_cluster(IDENTITY)
        await node.open()
        await node.register(record(1), 2.0)
        node.campaign()
        await until(lambda: node.leadership is not None)
        with pytest.raises(OutOfSpaceError, match="NOSPACE"):
            await fill(node)
        assert node.status.state is StoreState.FULL
        assert "no change is possible" in node.status.message
        await asyncio.sleep(2.5)  # longer than the lease
        assert node.is_registered
        assert len(node.members()) == 1
        await asyncio.to_thread(make_space, cluster)
        assert (await node.change_group(5000, b"1", 0)).outcome is Outcome.DONE
        assert node.status.is_usable
        await node.close()

    with running_etcd(tmp_path, options=("--quota-backend-bytes", str(16 << 20))) as cluster:
        asyncio.run(test(cluster))


async def fill(node: Coordination) -> None:
    for number in range(1000):
        await node.change_group(number, bytes(1_000_000), 0)


def make_space(etcd: EtcdCluster) -> None:
    etcd.run("del", "--prefix", f"{PREFIX}groups/")
    revision = etcd.run("get", "x", "-w", "json").stdout.partition('"revision":')[2].partition(",")[0]
    etcd.run("compact", revision)
    etcd.run("defrag")
    etcd.run("alarm", "disarm")


def test_an_emptied_or_restored_etcd_is_not_changed(own: EtcdCluster, tmp_path: Path) -> None:
    async def test() -> None:
        node = Coordination(connect(own))
        await node.create_cluster(IDENTITY)
        await node.open()
        await node.register(record(1), 5.0)
        node.campaign()
        await until(lambda: node.leadership is not None)
        await asyncio.to_thread(own.run, "snapshot", "save", str(tmp_path / "old.db"))
        for number in range(10):
            assert (await node.change_group(number, b"1", 0)).outcome is Outcome.DONE
        await until(lambda: len(node.groups()) == 10)
        await asyncio.to_thread(own.stop)
        await asyncio.to_thread(own.restore, tmp_path / "old.db")
        await asyncio.to_thread(own.start)
        await until(lambda: node.status.state is StoreState.ROLLED_BACK)
        assert "restored from an old copy" in node.status.message
        assert len(node.groups()) == 10
        with pytest.raises(RolledBackError):
            await node._store.commit([], [Put("groups/x", b"")])
        mark = node.mark
        restarted = Coordination(connect(own))
        with pytest.raises(RolledBackError, match="cluster recover"):
            await restarted.open(mark)
        await restarted.close()

        await asyncio.to_thread(own.stop)
        own.empty()
        await asyncio.to_thread(own.start)
        restarted = Coordination(connect(own))
        with pytest.raises(NoClusterError, match="is this the right store"):
            await restarted.open(mark)
        await restarted.close()
        await asyncio.sleep(1.5)
        assert node.status.state is StoreState.ROLLED_BACK
        assert (await node._store.inner.scan("")).entries == ()
        await node.close()

    asyncio.run(test())


def test_an_endpoint_where_nobody_listens_is_passed_over(etcd: EtcdCluster) -> None:
    async def test() -> None:
        closed = f"http://127.0.0.1:{free_port()}"
        for seed in range(3):
            store = connect_etcd(EtcdOptions((closed, *etcd.urls, closed), cluster_prefix("passed")), random.Random(seed))
            assert (await store.commit([], [Put("a", b"1")])).outcome is Outcome.DONE
            assert (await store.get("a")).entry is not None
            await store.close()
        store = connect_etcd(EtcdOptions((closed,), cluster_prefix("passed")), random.Random(1))
        with pytest.raises(CoordinationUnavailableError, match="no endpoint can be reached"):
            await store.commit([], [Put("a", b"1")])  # nothing was sent, so nothing is unknown
        await store.close()
        with pytest.raises(ClosedError):
            await store.get("a")

    asyncio.run(test())


def test_a_listing_that_is_compacted_between_its_pages_starts_again(etcd: EtcdCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setattr("penstock.coordination.etcd.store.PAGE_KEYS", 2)
        store = connect(etcd, cluster_prefix("paged"))
        result = await store.commit([], [Put(f"k/{number}", b"") for number in range(5)])
        ranges = store._range  # type: ignore[attr-defined]
        pages = 0

        async def compacting(request: object) -> object:
            nonlocal pages
            pages += 1
            if pages == 2:
                last = (await store.commit([], [Put("k/5", b"")])).revision
                await asyncio.to_thread(etcd.run, "compact", str(last))
            return await ranges(request)

        monkeypatch.setattr(store, "_range", compacting)
        snapshot = await store.scan("k/")
        assert [entry.key for entry in snapshot.entries] == [f"k/{number}" for number in range(6)]
        assert snapshot.position.revision > result.revision
        with pytest.raises(CompactedError):
            await anext(store.watch("k/", result.revision - 1))
        await store.close()

    asyncio.run(test())
