"""Bytes on a disk that are not what was written, under a real node: it starts, says so, and is repaired by a command."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.http.api_client import client_of, eventually
from tests.e2e.running_node import penstock, running_node

MESSAGES = 30
STORAGE_ERROR = b"KAFKA_STORAGE_ERROR"


def _flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(bytes(raw))


def test_a_damaged_partition_is_named_and_repaired_while_all_else_is_served(tmp_path: Path) -> None:
    argv = ["--data-dir", str(tmp_path / "data"), "--http-port", "0"]
    with running_node(tmp_path / "log", argv) as node:
        node.ok("topic", "create", "hurt", "sound")
        for number in range(MESSAGES):
            if number % 10 == 0:
                node.ok("produce", "sound", stdin=b"sound-%02d\n" % number)
                node.ok("produce", "hurt", stdin=b"hurt-%02d\n" % number)
        assert node.stop() == 0
    (chunk,) = (path for path in (tmp_path / "data").rglob("*.chunk") if b"hurt-10" in path.read_bytes())
    _flip(chunk, chunk.read_bytes().index(b"hurt-10"))
    with running_node(tmp_path / "log", argv) as node:
        api = client_of(node)
        where = {"PENSTOCK_HTTP": api.address, "PENSTOCK_BOOTSTRAP": node.bootstrap}
        assert node.ok("consume", "sound").split() == ["sound-00", "sound-10", "sound-20"]
        refused = node.run("produce", "hurt", "--timeout", "2", stdin=b"more\n")
        assert refused.returncode != 0
        assert STORAGE_ERROR in refused.stderr, refused.stderr
        eventually(lambda: bool(api.send("GET", "/readyz").json.get("damage")))
        ready = api.send("GET", "/readyz")
        assert ready.status == 200
        assert "partition 0 of topic 'hurt' is damaged" in ready.json["damage"][0]
        eventually(lambda: "PARTITION_DAMAGED" in {alert["code"] for alert in api.get("/overview")["alerts"]})
        assert b"penstock topic repair hurt" in penstock("status", variables=where).stdout
        assert [one["state"] for one in api.get("/topics/hurt/partitions")["items"]] == ["damaged"]
        told = json.loads(penstock("topic", "repair", "hurt", "--dry-run", "-o", "json", variables=where).stdout)
        assert told["log"]
        done = penstock("topic", "repair", "hurt", "--yes", variables=where)
        assert done.returncode == 0, done.stderr
        kept = node.ok("consume", "hurt").split()
        assert kept in (["hurt-00", "hurt-20"], ["hurt-00", "hurt-10", "hurt-20"])  # a later piece may hold it as well
        node.ok("produce", "hurt", stdin=b"after\n")
        assert node.ok("consume", "hurt").split() == [*kept, "after"]
        assert b"nothing of hurt is lost" in penstock("topic", "repair", "hurt", variables=where).stdout
        assert node.stop() == 0


def test_a_flipped_bit_in_the_files_of_one_disk_keeps_no_group_down(tmp_path: Path) -> None:
    argv = ["--data-dir", str(tmp_path / "data"), "--erasure", "block-4-2"]
    with running_node(tmp_path / "log", argv) as node:
        node.ok("topic", "create", "kept")
        node.ok("produce", "kept", stdin=b"".join(b"message-%d\n" % number for number in range(MESSAGES)))
        assert node.stop() == 0
    disk = tmp_path / "data" / "disk3"
    for path in disk.rglob("*"):
        if path.name == "vdisk" or path.suffix in (".checkpoint", ".chunk"):
            _flip(path, 20)
    with running_node(tmp_path / "log", argv) as node:
        assert len(node.ok("consume", "kept").split()) == MESSAGES
        node.ok("produce", "kept", stdin=b"more\n")
        assert node.stop() == 0
