"""`penstock up` as a user runs it: it starts, stops, is killed, loses disks, and says clearly why it will not start."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.running_node import PENSTOCK, environment, penstock, running_node

pytestmark = pytest.mark.slow

LINES = [f"message {number}" for number in range(500)]
INPUT = "\n".join(LINES).encode() + b"\n"
DISKS = 8


def _block_4_2(tmp_path: Path) -> list[str]:
    disks = [word for number in range(DISKS) for word in ("--disk", str(tmp_path / f"disk{number}"))]
    return ["--data-dir", str(tmp_path / "data"), "--erasure", "block-4-2", *disks]


def _refused(done: subprocess.CompletedProcess[bytes], exit_code: int) -> str:
    """The one sentence with which a node that does not start explains itself."""
    text = done.stderr.decode()
    assert done.returncode == exit_code, text
    assert "Traceback" not in text
    assert done.stdout == b""
    (line,) = [line for line in text.splitlines() if line.startswith("penstock up: ")]
    return line


def test_the_ready_line_says_where_it_listens(tmp_path: Path) -> None:
    with running_node(tmp_path / "log", ["--data-dir", str(tmp_path / "data")]) as node:
        assert node.ready["event"] == "ready"
        assert node.ready["pid"] == node.process.pid
        assert node.ready["data_dir"] == str(tmp_path / "data")
        with socket.create_connection(("127.0.0.1", node.ready["listeners"]["kafka"]["port"]), timeout=5):
            pass


def test_the_ready_line_for_a_person_names_the_address(tmp_path: Path) -> None:
    command = [*PENSTOCK, "up", "--data-dir", str(tmp_path / "data"), "--kafka-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment()) as process:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        process.terminate()
        assert process.wait(30) == 0
    assert line.startswith("penstock is ready: kafka 127.0.0.1:")
    assert line.endswith(f"; data in {tmp_path / 'data'}\n")


def test_started_with_its_standard_streams_closed_no_file_of_it_takes_their_place(tmp_path: Path) -> None:
    argv = [*PENSTOCK, "up", "--data-dir", str(tmp_path / "data"), "--kafka-port", "0"]
    log = tmp_path / "log"
    with subprocess.Popen(["sh", "-c", 'exec "$@" <&- >&- 2>"$0"', str(log), *argv], env=environment()) as process:
        deadline = time.monotonic() + 30
        while not log.exists() or "is ready" not in log.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.terminate()
        assert process.wait(30) == 0, log.read_text()


def _files(folder: Path) -> set[Path]:
    """All that is there, but for where the node that runs notes now and then how far its log goes."""
    return {path for path in folder.rglob("*") if path.suffix != ".ends"}


def test_a_second_process_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with running_node(tmp_path / "log", ["--data-dir", data]) as node:
        before = _files(tmp_path / "data")
        second = penstock("up", "--data-dir", data, "--kafka-port", "0")
        assert f"{data} is in use by another process" in _refused(second, 4)
        assert _files(tmp_path / "data") == before
        assert node.ok("topic", "create", "still-there")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_in_order(tmp_path: Path, number: signal.Signals) -> None:
    with running_node(tmp_path / "log", ["--data-dir", str(tmp_path / "data")]) as node:
        node.ok("produce", "t", stdin=INPUT)
        node.process.send_signal(number)
        assert node.process.wait(30) == 0
    log = (tmp_path / "log").read_text()
    assert "stopped" in log
    assert "Traceback" not in log


def test_stopping_does_not_wait_for_idle_readers(tmp_path: Path) -> None:
    with running_node(tmp_path / "log", ["--data-dir", str(tmp_path / "data")]) as node:
        node.ok("topic", "create", "t")
        command = [*PENSTOCK, "consume", "t", "--follow", "--bootstrap", node.bootstrap, "--timeout", "1"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as reader:
            node.ok("produce", "t", stdin=b"it follows\n")
            assert reader.stdout is not None
            assert reader.stdout.readline() == b"it follows\n"
            started = time.monotonic()
            assert node.stop() == 0
            assert time.monotonic() - started < 8
            assert reader.wait(30) == 3


def test_messages_in_flight_when_it_is_stopped_are_written_or_refused_never_lost(tmp_path: Path) -> None:
    argv = ["--data-dir", str(tmp_path / "data")]
    with running_node(tmp_path / "log", argv) as node:
        node.ok("topic", "create", "t")
        command = [*PENSTOCK, "produce", "t", "--bootstrap", node.bootstrap, "--timeout", "1", "-o", "json"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as writer:
            assert writer.stdin is not None
            assert writer.stderr is not None
            for number, line in enumerate(LINES):
                writer.stdin.write(line.encode() + b"\n")
                writer.stdin.flush()
                if number == 0:
                    assert node.ok("consume", "t", "--follow", "--count", "1") == line + "\n"
                if number == len(LINES) // 2:
                    node.process.send_signal(signal.SIGTERM)
                time.sleep(0.001)
            assert node.process.wait(30) == 0
            writer.stdin.write(b"too late\n")
            writer.stdin.close()
            told = writer.stderr.read().decode()
            assert writer.wait(30) == 3, told
    acknowledged = int(told.split("; ")[-1].split()[0])
    with running_node(tmp_path / "log", argv) as node:
        read = node.ok("consume", "t").splitlines()
        assert read == LINES[: len(read)]
        assert len(read) >= acknowledged


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with running_node(tmp_path / "log", ["--data-dir", str(tmp_path / "data")]) as node:
        # The first is not heeded while the process is stopped, so that both are there when it goes on.
        node.process.send_signal(signal.SIGSTOP)
        node.process.send_signal(signal.SIGTERM)
        node.process.send_signal(signal.SIGINT)
        node.process.send_signal(signal.SIGCONT)
        assert node.process.wait(30) in (128 + signal.SIGTERM, 128 + signal.SIGINT)


def test_kill_9_loses_neither_topics_nor_messages(tmp_path: Path) -> None:
    argv = ["--data-dir", str(tmp_path / "data")]
    with running_node(tmp_path / "log", argv) as node:
        node.ok("topic", "create", "t", "--partitions", "3", "--config", "retention.ms=7200000")
        node.ok("produce", "t", "--partition", "2", stdin=INPUT)
        before = node.ok("topic", "describe", "t", "-o", "json")
        cluster_id = node.ready["cluster_id"]
        node.kill()
    with running_node(tmp_path / "log", argv) as node:
        assert node.ready["cluster_id"] == cluster_id
        assert node.ok("topic", "describe", "t", "-o", "json") == before
        assert node.ok("consume", "t").splitlines() == LINES


def test_a_restart_with_another_erasure_is_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    argv = ["--data-dir", str(tmp_path / "data")]
    with running_node(tmp_path / "log", argv) as node:
        node.ok("produce", "t", stdin=INPUT)
        assert node.stop() == 0
    refused = _refused(penstock("up", *argv, "--erasure", "block-4-2", "--kafka-port", "0"), 6)
    assert "was made with erasure none, not block-4-2" in refused
    with running_node(tmp_path / "log", argv) as node:
        assert node.ok("consume", "t").splitlines() == LINES


def test_two_disks_removed_while_it_is_down_are_filled_again(tmp_path: Path) -> None:
    argv = _block_4_2(tmp_path)
    with running_node(tmp_path / "log", argv) as node:
        node.ok("produce", "t", stdin=INPUT)
        assert node.stop() == 0
    for number in (2, 5):
        shutil.rmtree(tmp_path / f"disk{number}")
    with running_node(tmp_path / "log", argv) as node:
        assert node.ok("consume", "t").splitlines() == LINES
        node.ok("produce", "t", "one more")
        assert node.stop() == 0
    # Other two are gone now: what was lost first must have been restored.
    for number in (0, 7):
        shutil.rmtree(tmp_path / f"disk{number}")
    with running_node(tmp_path / "log", ["--data-dir", str(tmp_path / "data")]) as node:
        assert node.ok("consume", "t").splitlines() == [*LINES, "one more"]


def test_two_disks_removed_while_it_is_up_are_done_without(tmp_path: Path) -> None:
    argv = _block_4_2(tmp_path)
    with running_node(tmp_path / "log", argv) as node:
        node.ok("produce", "t", stdin=INPUT)
        for number in (1, 6):
            shutil.rmtree(tmp_path / f"disk{number}")
        node.ok("produce", "t", stdin=INPUT)
        assert node.ok("consume", "t").splitlines() == LINES * 2
        node.kill()
    with running_node(tmp_path / "log", argv) as node:
        assert node.ok("consume", "t").splitlines() == LINES * 2


def test_a_disk_that_cannot_be_used_is_done_without(tmp_path: Path) -> None:
    argv = _block_4_2(tmp_path)
    with running_node(tmp_path / "log", argv) as node:
        node.ok("produce", "t", stdin=INPUT)
        assert node.stop() == 0
    shutil.rmtree(tmp_path / "disk3")
    (tmp_path / "disk3").write_text("not a directory", encoding="utf-8")
    with running_node(tmp_path / "log", argv) as node:
        assert node.ok("consume", "t").splitlines() == LINES
        node.ok("produce", "t", "one more")
    assert "7 of 8 disks" in (tmp_path / "log").read_text()


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = _refused(penstock("up", "--data-dir", str(tmp_path / "data"), "--kafka-port", port), 7)
    assert f"cannot listen on 127.0.0.1:{port}" in refused
    assert "choose another --host or --kafka-port" in refused


def test_a_host_that_is_not_this_machine_is_told(tmp_path: Path) -> None:
    refused = _refused(penstock("up", "--data-dir", str(tmp_path / "data"), "--host", "192.0.2.1", "--kafka-port", "0"), 7)
    assert "cannot listen on 192.0.2.1:0" in refused


def test_no_listener_is_a_node_all_the_same(tmp_path: Path) -> None:
    with running_node(tmp_path / "log", ["--data-dir", str(tmp_path / "data"), "--kafka-port", "none"]) as node:
        assert node.ready["listeners"] == {}
        assert node.stop() == 0


def _unwritable(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file", encoding="utf-8")


def _newer(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "node.json").write_text(json.dumps({"format": 99}), encoding="utf-8")


def _foreign(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "thesis.tex").touch()


@pytest.mark.parametrize(
    ("prepare", "exit_code", "words"),
    [(_unwritable, 5, "cannot use"), (_newer, 6, "upgrade Penstock"), (_foreign, 6, "holds other files (thesis.tex)")],
)
def test_a_directory_that_will_not_do_is_told(
    tmp_path: Path, prepare: Callable[[Path], None], exit_code: int, words: str
) -> None:
    prepare(tmp_path)
    assert words in _refused(penstock("up", "--data-dir", str(tmp_path / "data"), "--kafka-port", "0"), exit_code)


def test_a_vdisk_of_a_newer_format_is_told(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running_node(tmp_path / "log", ["--data-dir", str(data)]) as node:
        assert node.stop() == 0
    identity = data / "disk0" / "00000000-0-0-0" / "vdisk"
    raw = bytearray(identity.read_bytes())
    raw[4:6] = (99).to_bytes(2, "big")
    identity.write_bytes(raw)
    assert "upgrade Penstock" in _refused(penstock("up", "--data-dir", str(data), "--kafka-port", "0"), 6)


@pytest.mark.parametrize(
    ("argv", "toml", "variables", "words"),
    [
        (["--kafka-port", "http"], "", {}, "option --kafka-port: kafka_port is 'http'; it must be a port"),
        ([], "kafka_prot = 1", {}, "penstock.toml: unknown key 'kafka_prot'; did you mean kafka_port?"),
        (
            [],
            "",
            {"PENSTOCK_ERASURE": "raid"},
            "environment variable PENSTOCK_ERASURE: erasure is 'raid'; it must be one of none",
        ),
        (["--config", "absent.toml"], "", {}, "cannot read the configuration file absent.toml"),
        (["--erasure", "block-4-2", "--disk", "a"], "", {}, "needs 8 disks, but 1 is named"),
    ],
)
def test_a_wrong_configuration_is_told(tmp_path: Path, argv: list[str], toml: str, variables: dict[str, str], words: str) -> None:
    if toml:
        (tmp_path / "penstock.toml").write_text(toml, encoding="utf-8")
    assert words in _refused(penstock("up", *argv, cwd=tmp_path, variables=variables), 2)


def test_settings_from_a_file_are_used(tmp_path: Path) -> None:
    config = tmp_path / "my.toml"
    config.write_text('data_dir = "elsewhere"\nnode_id = 7\ndurability = "os"\nauto_create_topics = false', encoding="utf-8")
    with running_node(tmp_path / "log", ["--config", str(config)]) as node:
        assert (node.ready["node_id"], node.ready["durability"]) == (7, "os")
        assert node.ready["data_dir"] == str(tmp_path / "elsewhere")
        refused = node.run("produce", "t", "x")
        assert refused.returncode == 1
        assert b"there is no topic 't'" in refused.stderr
