"""The supervisor's socket: who may open it, and what its workers see when the supervisor stops, hangs or starts again."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import struct
from pathlib import Path

import msgspec
import pytest

from penstock.coordination import (
    Coordination,
    CoordinationUnavailableError,
    KeyTable,
    MemoryStore,
    Outcome,
    Put,
    RolledBackError,
    SocketServer,
    SocketStore,
    StoreState,
)
from penstock.core.clock import boot_time
from penstock.core.errors import ConfigError
from tests.e2e.coordination.nodes import IDENTITY, record, until


def make_server(path: Path, store_id: str = "supervisor") -> tuple[MemoryStore, SocketServer]:
    store = MemoryStore(KeyTable(store_id), boot_time)
    return store, SocketServer(store, path)


def test_only_the_owner_may_open_the_socket(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "s"
        before = os.umask(0)
        try:
            store, server = make_server(path)
            await server.start()
        finally:
            os.umask(before)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(ConfigError, match="another supervisor"):
            await make_server(path)[1].start()
        await server.close()
        assert not path.exists()
        await store.close()

    asyncio.run(test())


def test_the_socket_of_a_dead_supervisor_is_replaced_and_other_files_are_not(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "s"
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
        store, server = make_server(path)
        await server.start()
        await server.close()
        path.write_text("data")
        with pytest.raises(ConfigError, match="is not a socket"):
            await server.start()
        assert path.read_text() == "data"
        await store.close()

    asyncio.run(test())


def test_a_worker_goes_on_when_the_server_listens_again(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "s"
        store, server = make_server(path)
        await server.start()
        node = Coordination(SocketStore(path, boot_time, read_s=1.2))
        await node.create_cluster(IDENTITY)
        await node.open()
        await node.register(record(1), 60.0)
        await server.close()
        with pytest.raises(CoordinationUnavailableError, match="does not answer"):
            await node.read_group(1)
        assert node.status.state is StoreState.AWAY
        with pytest.raises(CoordinationUnavailableError):
            await SocketStore(path, boot_time).commit([], [Put("groups/a", b"1")])
        await store.commit([], [Put("groups/0000000000000001", b"1")])
        server = SocketServer(store, path)
        await server.start()
        await until(lambda: len(node.groups()) == 1)
        assert node.status.is_usable
        assert node.is_registered
        await node.close()
        await server.close()
        await store.close()

    asyncio.run(test())


def test_another_supervisor_with_an_empty_store_is_not_used(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "s"
        store, server = make_server(path, "first")
        await server.start()
        node = Coordination(SocketStore(path, boot_time))
        await node.create_cluster(IDENTITY)
        await node.open()
        await server.close()
        await store.close()
        store, server = make_server(path, "second")
        await server.start()
        await until(lambda: node.status.state is StoreState.ROLLED_BACK)
        with pytest.raises(RolledBackError):
            await node._store.commit([], [Put("a", b"")])
        await node.close()
        await server.close()
        await store.close()

    asyncio.run(test())


def test_a_supervisor_that_hangs_leaves_a_transaction_unknown(tmp_path: Path) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def test() -> None:
        path = tmp_path / "s"
        server = await asyncio.start_unix_server(hang, path)
        store = SocketStore(path, boot_time, call_s=0.1, read_s=0.3)
        assert (await store.commit([], [Put("a", b"")])).outcome is Outcome.UNKNOWN
        with pytest.raises(CoordinationUnavailableError, match=r"within 0\.3 s"):
            await store.get("a")
        with pytest.raises(CoordinationUnavailableError):
            await anext(store.watch("", 1))
        await store.close()
        server.close()

    asyncio.run(test())


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">I", 1 << 30),
        struct.pack(">I", 4) + b"\xff\xff\xff\xff",
        struct.pack(">I", 1) + msgspec.msgpack.encode(1),
    ],
    ids=["http", "huge", "no MessagePack", "no request"],
)
def test_a_stranger_is_disconnected_and_others_are_served(tmp_path: Path, sent: bytes) -> None:
    async def test() -> None:
        path = tmp_path / "s"
        store, server = make_server(path)
        await server.start()
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(sent)
        assert await reader.read() == b""
        writer.close()
        client = SocketStore(path, boot_time)
        assert (await client.commit([], [Put("a", b"")])).outcome is Outcome.DONE
        await client.close()
        await server.close()
        await store.close()

    asyncio.run(test())


def test_wrong_arguments_and_unknown_calls_are_answered(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "s"
        store, server = make_server(path)
        await server.start()
        reader, writer = await asyncio.open_unix_connection(str(path))
        for call, (method, arguments) in enumerate([("get", [1]), ("commit", [[], [["a"]]]), ("watch", []), ("drop", [])]):
            body = msgspec.msgpack.encode([call, method, arguments])
            writer.write(struct.pack(">I", len(body)) + body)
            (length,) = struct.unpack(">I", await reader.readexactly(4))
            number, kind, (code, text) = msgspec.msgpack.decode(await reader.readexactly(length))
            assert (number, kind, code) == (call, "failed", "invalid_request")
            assert method in text
        writer.close()
        await server.close()
        await store.close()

    asyncio.run(test())
