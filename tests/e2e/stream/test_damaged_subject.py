"""A subject whose log is damaged: it is told of, and keeps no other subject, no listing and no node from working."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from tests.e2e.http.api_client import ApiClient, client_of
from tests.e2e.running_node import penstock, running_node
from tests.e2e.stream.stream_client import StreamClient


def test_a_damaged_subject_is_told_of_and_keeps_no_other_from_working(tmp_path: Path) -> None:
    argv = ["--data-dir", str(tmp_path / "data"), "--stream-port", "0", "--stream-http-port", "0", "--http-port", "0"]
    with running_node(tmp_path / "log", argv) as node:
        with StreamClient(f"127.0.0.1:{node.ready['listeners']['stream']['port']}") as client:
            last = 0
            for number in range(3):
                client.publish("hurt", b"hurt-%d" % number)
                last = client.publish("sound", b"sound-%d" % number).sequence
            client.ack("worker", "hurt", 1)
        assert node.stop() == 0
    (chunk,) = (path for path in (tmp_path / "data").rglob("*.chunk") if b"hurt-1" in path.read_bytes())
    raw = bytearray(chunk.read_bytes())
    raw[raw.index(b"hurt-1")] ^= 1
    chunk.write_bytes(bytes(raw))
    with running_node(tmp_path / "log", argv) as node:
        with StreamClient(f"127.0.0.1:{node.ready['listeners']['stream']['port']}") as client:
            for call in (
                lambda: client.fetch("hurt", "worker"),
                lambda: client.last_sequence("hurt"),
                lambda: list(client.read(">")),
            ):
                with pytest.raises(grpc.RpcError) as caught:
                    call()
                assert "partition 0 of topic 'hurt' is damaged" in str(caught.value.details())
            assert [message.data for message in client.read("sound")] == [b"sound-0", b"sound-1", b"sound-2"]
            assert client.publish("sound", b"more").sequence == last + 1
            assert client.publish("new", b"first").sequence == last + 2
            listed = ApiClient("127.0.0.1", node.ready["listeners"]["stream_http"]["port"]).send("GET", "/streams").json
            assert {one["subject"]: one["last_sequence"] for one in listed} == {"hurt": None, "new": last + 2, "sound": last + 1}
            api = client_of(node)
            assert [one["subject"] for one in api.get("/streams")["items"]] == ["hurt", "new", "sound"]
            assert api.get("/consumers/stream:worker")["topics"] == ["hurt"]
            where = {"PENSTOCK_HTTP": api.address, "PENSTOCK_BOOTSTRAP": node.bootstrap}
            assert penstock("topic", "repair", "hurt", "--yes", variables=where).returncode == 0
            assert b"hurt-2" in [message.data for message in client.read("hurt")]
            assert client.publish("hurt", b"after").sequence == last + 3
        assert node.stop() == 0
