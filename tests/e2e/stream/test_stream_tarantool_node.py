"""A node whose streams are in Tarantool, from `penstock stream init-tarantool` to a gRPC client and one of Tarantool's own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asynctnt
import pytest

from penstock.broker.streams.tarantool import disconnect
from tests.debian_tools import NotAvailableError
from tests.e2e.running_node import penstock, running_node
from tests.e2e.stream.stream_client import StreamClient
from tests.e2e.stream.tarantool_server import running_tarantool


def test_a_node_serves_streams_out_of_tarantool(tmp_path: Path) -> None:
    try:
        tarantool = running_tarantool(tmp_path / "tarantool")
        url = tarantool.__enter__()
    except NotAvailableError as error:
        pytest.skip(str(error))
    try:
        argv = ["--data-dir", str(tmp_path / "data"), "--stream-port", "0"]
        argv += ["--stream-metadata", url, "--stream-payloads", (tmp_path / "objects").as_uri()]
        early = penstock("up", "--kafka-port", "0", *argv)
        assert early.returncode != 0
        assert b"init-tarantool" in early.stderr
        assert penstock("stream", "init-tarantool", url).returncode == 0
        with running_node(tmp_path / "log", argv) as node:
            with StreamClient(f"127.0.0.1:{node.ready['listeners']['stream']['port']}") as client:
                sequence = client.publish("orders", b"hello", {"source": "api"}).sequence
                large = client.upload("orders", [b"x" * (1 << 20)] * 11).sequence
                assert [one.data for one in client.fetch("orders", "worker")] == [b"hello", b""]
                assert sum(map(len, client.download(large))) == 11 << 20
                client.ack("worker", "orders", sequence)
            asyncio.run(_as_the_seed_calls_it(url, sequence))
    finally:
        tarantool.__exit__(None, None, None)


async def _as_the_seed_calls_it(url: str, sequence: int) -> None:
    connection = asynctnt.Connection(host="127.0.0.1", port=int(url.rpartition(":")[2]))
    await connection.connect()
    try:
        (message,) = (await connection.call("get_message_by_sequence", [sequence])).body
        assert (message[0], message[1]["source"], message[3]) == (sequence, "api", "orders")
        assert (await connection.call("get_consumer_position", ["worker", "orders"])).body == [sequence]
        (given,) = (await connection.call("publish_message", ["orders", "minio/orders/1.json", {"a": "b"}])).body
        (rows,) = (await connection.call("get_messages_by_subject", ["orders", given, 10])).body
        assert [list(row)[:1] + list(row)[2:4] for row in rows] == [[given, "minio/orders/1.json", "orders"]]
        assert (await connection.call("get_latest_sequence_for_subject", ["orders"])).body == [given]
        count, deleted = (await connection.call("delete_old_messages", [-5])).body
        assert count == 3
        assert deleted[-1] == {"sequence": given, "subject": "orders", "object_name": "minio/orders/1.json"}
    finally:
        await disconnect(connection)
