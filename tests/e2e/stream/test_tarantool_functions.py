"""The seed's functions within a real Tarantool: its examples in Lua as they stand, odd arguments, and payloads of publishers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock.broker.streams.tarantool import TarantoolStreams, connect, disconnect, install, open_objects
from penstock.core.clock import SystemClock
from penstock.gateway.stream.inline_data import with_data
from tests.debian_tools import NotAvailableError
from tests.e2e.running_node import penstock, running_node
from tests.e2e.stream.stream_client import StreamClient
from tests.e2e.stream.tarantool_server import running_tarantool

# Of the seed, word for word but for what it only hints at: the client of MinIO and the processing.
EXAMPLES = """
local minio = {}
local minio_client = {
    upload = function(self, payload, key) minio[key] = payload return key end,
    download = function(self, key) return minio[key] end,
    delete = function(self, key) minio[key] = nil end,
}
local payload = 'hello'
local processed = {}
local function process_message(payload) table.insert(processed, payload) end

local object_key = minio_client:upload(payload, "bucket/key")
local sequence = publish_message("orders", object_key, {
    ["content-type"] = "application/json",
    ["size"] = tostring(#payload)
})

local consumer_name = "order-processor-v1"
local subject = "orders"
local current_pos = get_consumer_position(consumer_name, subject)
local messages = get_messages_by_subject(subject, current_pos + 1, 100)
for _, msg in ipairs(messages) do
    local seq = msg[1]
    local object_name = msg[3]
    local payload = minio_client:download(object_name)
    process_message(payload)
    update_consumer_position(consumer_name, subject, seq)
end

local latest = get_latest_sequence_for_subject("orders")
local pos = get_consumer_position("order-processor-v1", "orders")
local consumers = get_consumers_by_subject("orders")
local msg = get_message_by_sequence(latest)
local at_all, of_orders = box.space.message:count(), box.space.message.index.subject:count("orders")
local max = box.space.message.index.primary:max()
local next_sequence = get_next_sequence()

local ttl = -5
local count, deleted = delete_old_messages(ttl)
for _, msg_info in ipairs(deleted) do
    minio_client:delete(msg_info.object_name)
end
return sequence, processed, latest, pos, #consumers, msg[4], at_all, of_orders, max[1], next_sequence, count, minio[object_key]
"""


@pytest.fixture
def tarantool(tmp_path: Path) -> Iterator[str]:
    with ExitStack() as servers:
        try:
            url = servers.enter_context(running_tarantool(tmp_path / "tarantool"))
        except NotAvailableError as error:
            pytest.skip(str(error))
        asyncio.run(_on(url, install))
        yield url


async def _on(url: str, work: Callable[[Any], Awaitable[None]]) -> None:
    connection = await connect(url)
    try:
        await work(connection)
    finally:
        await disconnect(connection)


def test_the_examples_of_the_seed_run_as_they_stand(tarantool: str) -> None:
    async def run(connection: Any) -> None:
        assert (await connection.eval(EXAMPLES)).body == [1, ["hello"], 1, 1, 1, "orders", 1, 1, 1, 2, 1, None]

    asyncio.run(_on(tarantool, run))


def test_headers_may_be_missing_or_no_text(tarantool: str, tmp_path: Path) -> None:
    async def run(connection: Any) -> None:
        odd = {"number": 5, "large": 2**60, "flag": True, "list": [1, "a"], 7: "seven", "text": "t"}
        for headers in ([None], [], [odd]):
            await connection.call("publish_message", ["odd", "key", *headers])
        await connection.eval("publish_message('odd', 'key', nil)")
        await connection.eval("box.space.message:insert({get_next_sequence(), {n = 1, list = {2}}, 'key', 'odd', os.time()})")
        streams = await TarantoolStreams.start(
            tarantool, open_objects(tmp_path.as_uri()), ttl_s=None, clock=SystemClock(), random=Random()
        )
        try:
            found = (await streams.read("odd", 1, 10)).messages
        finally:
            await streams.stop()
        assert [message.headers for message in found] == [
            {},
            {},
            {"number": "5", "large": str(2**60), "flag": "true", "list": '[1,"a"]', "7": "seven", "text": "t"},
            {},
            {"n": "1", "list": "[2]"},
        ]

    asyncio.run(_on(tarantool, run))


def test_what_publishers_put_into_the_store_is_read_and_never_deleted(tarantool: str, tmp_path: Path) -> None:
    store = tmp_path / "objects"
    (store / "minio").mkdir(parents=True)
    (store / "minio" / "1.json").write_bytes(b"of the publisher")
    (store / "minio" / "2.bin").write_bytes(b"x" * 2000)

    async def run(connection: Any) -> None:
        for name in ("minio/1.json", "minio/2.bin", "minio/none", "../outside"):
            await connection.call("publish_message", ["named", name, {"penstock.size": "3", "penstock.crc32c": "00000000"}])
        streams = await TarantoolStreams.start(
            tarantool, open_objects(store.as_uri()), ttl_s=None, clock=SystemClock(), random=Random(), upload_s=0
        )
        try:
            own = await streams.publish("named", b"of the node")
            sent = [await with_data(streams, one, 1000) for one in (await streams.read("named", 1, 10)).messages]
            assert [one.data for one in sent if one] == [b"of the publisher", b"", b"", b"", b"of the node"]
            shown = [{name: value for name, value in one.headers.items() if "penstock" in name} for one in sent if one]
            assert shown[:3] == [
                {},
                {"penstock.object_name": "minio/2.bin", "penstock.size": "2000"},
                {"penstock.object_name": "minio/none"},
            ]
            message, size = await streams.payload_of(2)
            assert size == sum([len(part) async for part in streams.read_payload(message)]) == 2000
            assert {one.object_name for one in await streams.delete_old(-5)} >= {"minio/1.json", own.object_name}
            await streams.sweep()
        finally:
            await streams.stop()
        kept = sorted(str(path.relative_to(store)) for path in store.rglob("*") if path.is_file())
        assert kept == ["minio/1.json", "minio/2.bin"], "the node deletes its own objects, and no others"

    asyncio.run(_on(tarantool, run))


def test_objects_of_nodes_before_this_schema_are_still_theirs(tarantool: str) -> None:
    async def run(connection: Any) -> None:
        own = "orders/" + "0f" * 16
        for name, headers in (
            (own, {"penstock.size": "1", "penstock.crc32c": "00000000"}),
            ("minio/a", {}),
            ("x/" + "g" * 32, {}),
        ):
            await connection.call("publish_message", ["orders", name, headers])
        await connection.eval("box.space.owned:drop() box.space.leftovers:replace({'minio/b'})")
        await install(connection)
        (objects,) = (await connection.eval("return box.space.owned:select()")).body
        assert [list(one) for one in objects] == [[own]]
        assert (await connection.eval("return box.space.leftovers:count()")).body == [0]

    asyncio.run(_on(tarantool, run))


def test_a_restarted_tarantool_has_its_globals_again_while_a_node_uses_it(tmp_path: Path) -> None:
    folder = tmp_path / "tarantool"
    try:
        with running_tarantool(folder) as url:
            assert penstock("stream", "init-tarantool", url).returncode == 0
    except NotAvailableError as error:
        pytest.skip(str(error))
    (folder / "ready").unlink()
    with running_tarantool(folder) as url:
        argv = ["--data-dir", str(tmp_path / "data"), "--stream-port", "0", "--stream-metadata", url]
        argv += ["--stream-payloads", (tmp_path / "objects").as_uri()]
        with running_node(tmp_path / "log", argv) as node:

            async def run(connection: Any) -> None:
                assert (await connection.eval("return publish_message('orders', 'minio/none')")).body == [1]

            asyncio.run(_on(url, run))
            with StreamClient(f"127.0.0.1:{node.ready['listeners']['stream']['port']}") as client:
                (message,) = client.fetch("orders", "worker")
                assert (message.data, dict(message.headers)) == (b"", {"penstock.object_name": "minio/none"})
