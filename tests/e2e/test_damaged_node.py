"""Bytes on a disk that are not what was written, under a real node: it starts, says so, and is repaired by a command."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from pathlib import Path

import ydb

from tests.e2e.http.api_client import client_of, eventually
from tests.e2e.running_node import RunningNode, penstock, running_node

MESSAGES = 30
STORAGE_ERROR = b"KAFKA_STORAGE_ERROR"


def _flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(bytes(raw))


def test_a_damaged_partition_is_named_and_repaired_while_all_else_is_served(tmp_path: Path) -> None:
    ports = [part for name in ("http", "stream", "yt", "ydb") for part in (f"--{name}-port", "0")]
    argv = ["--data-dir", str(tmp_path / "data"), *ports]
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
        for heard in (_published(node), _pulled(node), _written(node)):
            assert "partition 0 of topic 'hurt' is damaged" in heard, heard
        damaged = "partition 0 of topic 'hurt' is damaged"
        eventually(lambda: any(damaged in each for each in api.send("GET", "/readyz").json.get("damage", [])))
        assert api.send("GET", "/readyz").status == 200
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
        assert "after" in _published(node, "fetch")
        assert _written(node) == ""
        assert b"nothing of hurt is lost" in penstock("topic", "repair", "hurt", variables=where).stdout
        assert node.stop() == 0


def test_what_a_scrub_finds_is_told_before_anyone_reads_it(tmp_path: Path) -> None:
    argv = ["--data-dir", str(tmp_path / "data"), "--http-port", "0"]
    with running_node(tmp_path / "log", argv) as node:
        node.ok("topic", "create", "hurt", "sound")
        node.ok("produce", "hurt", stdin=b"lost-" + b"x" * 50_000 + b"\n")
        node.ok("produce", "sound", stdin=b"kept\n")
        assert node.stop() == 0
    with running_node(tmp_path / "log", argv) as node:  # the chunk is sealed by now
        api = client_of(node)
        where = {"PENSTOCK_HTTP": api.address, "PENSTOCK_BOOTSTRAP": node.bootstrap}
        (chunk,) = (path for path in (tmp_path / "data").rglob("*.chunk") if b"lost-" in path.read_bytes())
        with chunk.open("r+b") as file:
            file.seek(chunk.read_bytes().index(b"lost-"))
            file.write(b"L")
        assert penstock("storage", "scrub", variables=where).returncode == 0
        eventually(lambda: bool(api.get("/storage")["groups"][0]["vdisks"][0]["damaged"]))
        eventually(lambda: "DISK_DAMAGED" in {alert["code"] for alert in api.get("/overview")["alerts"]})
        shown = penstock("status", "--check", variables=where)
        assert shown.returncode == 1
        for told in (b"1 damaged part", str(tmp_path / "data").encode(), b"topic 'hurt'", b"penstock topic repair hurt"):
            assert told in shown.stdout, shown.stdout
        assert b"sound" not in shown.stdout
        assert "topic 'hurt'" in api.send("GET", "/readyz").json["damage"][0]
        port = api.address.rpartition(":")[2]
        found = penstock("doctor", "--data-dir", str(tmp_path / "data"), variables={**where, "PENSTOCK_HTTP_PORT": port}).stdout
        assert b"data is damaged" in found, found
        losses = api.get("/storage")["groups"][0]["vdisks"][0]["losses"]
        assert any("is damaged" in loss for loss in losses), losses
        assert node.ok("consume", "sound").split() == ["kept"]
        assert node.stop() == 0


def test_a_loss_that_nothing_tells_the_extent_of_is_told_too(tmp_path: Path) -> None:
    argv = ["--data-dir", str(tmp_path / "data"), "--http-port", "0"]
    with running_node(tmp_path / "log", argv) as node:
        node.ok("produce", "hurt", stdin=b"lost\n")
        node.ok("produce", "sound", stdin=b"kept\n")
        assert node.stop() == 0
    (chunk,) = (path for path in (tmp_path / "data").rglob("*.chunk") if b"lost" in path.read_bytes())
    raw = bytearray(chunk.read_bytes())
    header = raw.rindex(b"PENr", 0, raw.index(b"lost"))
    raw[header + 20 : header + 40] = bytes(20)  # not even whose record it was can be read
    chunk.write_bytes(bytes(raw))
    with running_node(tmp_path / "log", argv) as node:
        api = client_of(node)
        assert node.ok("consume", "sound").split() == ["kept"]
        assert "is unreadable from byte" in api.send("GET", "/readyz").json["damage"][0]
        eventually(lambda: "DISK_DAMAGED" in {alert["code"] for alert in api.get("/overview")["alerts"]})
        assert node.stop() == 0


def _published(node: RunningNode, action: str = "publish") -> str:
    """What a client of streams is told."""
    stream = node.ready["listeners"]["stream"]
    done = penstock("stream", action, "hurt", stdin=b"x\n", variables={"PENSTOCK_STREAM": f"{stream['host']}:{stream['port']}"})
    return (done.stdout + done.stderr).decode()


def _pulled(node: RunningNode) -> str:
    """What a client of YT is told."""
    proxy = node.ready["listeners"]["yt"]
    connection = HTTPConnection(proxy["host"], proxy["port"], timeout=30)
    connection.request("GET", "/api/v4/pull_queue?queue_path=//topics/hurt&partition_index=0&offset=0")
    message: str = json.loads(connection.getresponse().read())["message"]
    connection.close()
    return message


def _written(node: RunningNode) -> str:
    """What YDB's own client is told; nothing if it could write."""
    listener = node.ready["listeners"]["ydb"]
    config = ydb.DriverConfig(f"grpc://{listener['host']}:{listener['port']}", database="/local")
    with ydb.Driver(config) as driver:
        driver.wait(30)
        try:
            with driver.topic_client.writer("hurt", producer_id="p") as writer:
                writer.write_with_ack("x", timeout=30)
        except ydb.Error as error:
            return str(error).replace("\\", "")
    return ""


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
