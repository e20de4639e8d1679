"""A machine's clock that jumps by days, under a real node: retention deletes nothing for it and says so."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.debian_tools import NotAvailableError, unpacked_tool
from tests.e2e.http.api_client import ApiClient, client_of, eventually
from tests.e2e.running_node import PENSTOCK, RunningNode, penstock, running_node

DAY_S = 86400


def _faked(set_by: Path) -> list[str]:
    """A program with a wall clock that is set by what a file says; its monotonic clock stays as it is."""
    try:
        tool = unpacked_tool("faketime")
    except NotAvailableError as error:
        pytest.skip(str(error))
    folders = [*tool.variables.get("LD_LIBRARY_PATH", "").split(":"), *map(str, Path("/usr/lib").glob("*/faketime"))]
    library = next(Path(folder) / "libfaketimeMT.so.1" for folder in folders if (Path(folder) / "libfaketimeMT.so.1").exists())
    settings = ["FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1", f"FAKETIME_TIMESTAMP_FILE={set_by}"]
    return ["env", f"LD_PRELOAD={library}", *settings, *PENSTOCK]


def _kept(api: ApiClient, topic: str) -> list[int]:
    return [partition["start"] for partition in api.get(f"/topics/{topic}/partitions")["items"]]


def _behind_s(api: ApiClient) -> float:
    line = next(line for line in api.send("GET", "/metrics").body.decode().splitlines() if line.startswith("penstock_age_clock"))
    return float(line.split()[1])


def test_a_jump_of_the_clock_deletes_no_messages_until_someone_confirms_it(tmp_path: Path) -> None:
    set_by = tmp_path / "set_by"
    set_by.write_text("+0")
    argv = ["--data-dir", str(tmp_path / "data"), "--http-port", "0", "--retention-interval-s", "0.2"]
    with running_node(tmp_path / "log", argv, program=_faked(set_by)) as node:
        api = client_of(node)
        node.ok("topic", "create", "sent", "--config", "retention.ms=604800000")
        node.ok("topic", "create", "stamped", "--config", "message.timestamp.type=LogAppendTime")
        node.ok("produce", "sent", stdin=b"before\n" * 100)
        # Backwards, and right again: what was stamped meanwhile looks eight days old.
        set_by.write_text(f"-{8 * DAY_S}")
        node.ok("produce", "stamped", stdin=b"behind\n" * 50)
        set_by.write_text("+0")
        eventually(lambda: _behind_s(api) > 7.9 * DAY_S)
        time.sleep(1.0)
        assert _kept(api, "stamped") == [0]
        # Forward: all there is looks too old.
        set_by.write_text(f"+{8 * DAY_S}")
        eventually(lambda: _behind_s(api) > 15.9 * DAY_S)
        node.ok("produce", "sent", stdin=b"fresh\n" * 10)
        time.sleep(1.0)
        assert _kept(api, "sent") == _kept(api, "stamped") == [0]
        eventually(lambda: "RETENTION_BEHIND_CLOCK" in {alert["code"] for alert in api.get("/overview")["alerts"]})
        assert "confirm-clock" in (tmp_path / "log").read_text()
        # A restart forgets nothing of it.
        assert node.stop() == 0
    with running_node(tmp_path / "log", argv, program=_faked(set_by)) as node:
        api = client_of(node)
        time.sleep(1.0)
        assert _kept(api, "sent") == _kept(api, "stamped") == [0]
        _confirm(node, api)
        eventually(lambda: _kept(api, "sent") != [0] and _kept(api, "stamped") != [0])
        eventually(lambda: "RETENTION_BEHIND_CLOCK" not in {alert["code"] for alert in api.get("/overview")["alerts"]})


def _confirm(node: RunningNode, api: ApiClient) -> None:
    done = penstock("storage", "confirm-clock", variables={"PENSTOCK_HTTP": api.address})
    assert done.returncode == 0, done.stderr
    assert b"15 d" in done.stdout, done.stdout
