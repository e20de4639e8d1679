"""The commands that talk to a node, run as a user would run them, with good input and bad."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.http.api_client import eventually
from tests.e2e.running_node import PENSTOCK, RunningNode, environment, penstock, running_node

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    folder = tmp_path_factory.mktemp("node")
    with running_node(folder / "log", ["--data-dir", str(folder / "data")]) as running:
        yield running


@pytest.fixture
def topic(node: RunningNode, request: pytest.FixtureRequest) -> str:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:200]
    node.ok("topic", "create", name, "--partitions", "3")
    return name


def _refused(node: RunningNode, *argv: str, exit_code: int, stdin: bytes = b"") -> str:
    """What a command says that does not do what was asked."""
    done = node.run(*argv, stdin=stdin)
    text = done.stderr.decode()
    assert done.returncode == exit_code, (done.stdout, text)
    assert "Traceback" not in text
    return text


# Topics


def test_topics_are_made_listed_and_deleted(node: RunningNode) -> None:
    assert node.ok("topic", "create", "life-a", "life-b", "-p", "2") == (
        "created topic life-a with 2 partitions\ncreated topic life-b with 2 partitions\n"
    )
    node.ok("topic", "alter", "life-b", "--set", "retention.ms=3d", "--set", "retention.bytes=1MiB")
    node.ok("produce", "life-b", stdin=b"x" * 1000)
    heading, *lines = (line.split("\t") for line in node.ok("topic", "list", "--prefix", "life-").splitlines())
    assert heading == ["NAME", "PARTITIONS", "SIZE", "RETENTION", "RETENTION BYTES"]
    week_ms = 7 * 86_400_000
    assert [lines[0], [*lines[1][:2], *lines[1][3:]]] == [
        ["life-a", "2", "0", str(week_ms), ""],
        ["life-b", "2", str(3 * 86_400_000), str(1 << 20)],
    ]
    assert int(lines[1][2]) > 1000
    listed = json.loads(node.ok("topic", "list", "--prefix", "life-", "-o", "json"))
    assert [(item["name"], item["partitions"]) for item in listed] == [("life-a", 2), ("life-b", 2)]
    assert node.ok("topic", "delete", "life-a", "--yes") == "deleted topic life-a\n"
    assert json.loads(node.ok("topic", "delete", "life-b", "-o", "json")) == {"deleted": ["life-b"]}
    assert node.ok("topic", "list", "--prefix", "life-", "--no-headers") == ""


def test_internal_topics_are_listed_when_asked_for(node: RunningNode, topic: str) -> None:
    node.ok("group", "reset", "anyone", "--topic", topic, "--to", "earliest", "--yes")  # it looks for its coordinator
    assert "__consumer_offsets" not in node.ok("topic", "list")
    assert "__consumer_offsets" in node.ok("topic", "list", "--internal")


def test_a_topic_is_described(node: RunningNode, topic: str) -> None:
    node.ok("produce", topic, "-p", "1", "a", "b")
    node.ok("topic", "alter", topic, "--set", "retention.ms=1000000", "--set", "retention.bytes=5000000")
    (described,) = json.loads(node.ok("topic", "describe", topic, "-o", "json"))
    assert described["config"] == {"retention.bytes": "5000000", "retention.ms": "1000000"}
    assert [(item["start"], item["end"]) for item in described["partitions"]] == [(0, 0), (0, 2), (0, 0)]
    node.ok("topic", "alter", topic, "--unset", "retention.bytes")
    plain = node.ok("topic", "describe", topic)
    assert "config\tretention.ms\t1000000\n" in plain
    assert "partition\t1\t1\t0\t2\t2\t1\t1\n" in plain, "of which the only node is the leader and the only replica"
    assert "retention.bytes" not in plain
    assert "retention.bytes" in node.ok("topic", "describe", topic, "--all-configs")


def test_more_replicas_than_copies_are_refused(node: RunningNode) -> None:
    node.ok("topic", "create", "one-copy", "--replication-factor", "1")
    refused = _refused(node, "topic", "create", "two-copies", "--replication-factor", "2", exit_code=1)
    assert "INVALID_REPLICATION_FACTOR" in refused


def test_partitions_are_added(node: RunningNode, topic: str) -> None:
    assert node.ok("topic", "add-partitions", topic, "--total", "5") == f"topic {topic} now has 5 partitions\n"
    node.ok("produce", topic, "-p", "4", "x")
    assert node.ok("consume", topic, "-p", "4") == "x\n"
    assert "INVALID_PARTITIONS" in _refused(node, "topic", "add-partitions", topic, "--total", "2", exit_code=1)


def test_a_topic_is_trimmed(node: RunningNode, topic: str) -> None:
    node.ok("produce", topic, "-p", "0", stdin=b"a\nb\nc\nd\n")
    assert "exactly one --partition" in _refused(node, "topic", "trim", topic, "--before", "2", exit_code=2)
    assert node.ok("topic", "trim", topic, "--before", "2", "--partition", "0") == "PARTITION\tWAS\tSTART\n0\t0\t2\n"
    assert node.ok("consume", topic) == "c\nd\n"
    assert "OFFSET_OUT_OF_RANGE" in _refused(node, "topic", "trim", topic, "--before", "99", "--partition", "0", exit_code=1)
    node.ok("topic", "trim", topic, "--before", "latest")
    assert node.ok("consume", topic) == ""


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["create", "twice", "twice"], "INVALID_REQUEST"),
        (["create", "no spaces"], "cannot name a topic"),
        (["create", "some", "--config", "cleanup.policy=never"], "cleanup.policy"),
        (["create", "some", "--config", "retention=1"], "unknown topic configuration 'retention'"),
        (["create", "some", "--config", "retention.mss=1"], "did you mean retention.ms?"),
        (["create", "some", "--partitions", "1000000"], "INVALID_PARTITIONS"),
        (["describe", "absent"], "there is no topic 'absent'"),
        (["delete", "absent"], "there is no"),
        (["alter", "absent", "--set", "retention.ms=1"], "absent"),
        (["add-partitions", "absent", "--total", "3"], "absent"),
        (["trim", "absent", "--before", "latest"], "there is no topic 'absent'"),
    ],
)
def test_what_cannot_be_done_to_a_topic_is_told(node: RunningNode, argv: list[str], words: str) -> None:
    assert words in _refused(node, "topic", *argv, exit_code=1)


def test_a_mistyped_setting_of_a_topic_is_named_with_the_one_that_was_meant(node: RunningNode) -> None:
    node.ok("topic", "create", "mistyped")
    refused = _refused(node, "topic", "alter", "mistyped", "--set", "retention.mss=1", exit_code=1)
    assert "did you mean retention.ms?" in refused


def test_nothing_to_alter_is_wrong_usage(node: RunningNode, topic: str) -> None:
    assert "nothing to change" in _refused(node, "topic", "alter", topic, exit_code=2)


def test_what_is_there_already_or_not_there_need_not_be_an_error(node: RunningNode, topic: str) -> None:
    assert "TOPIC_ALREADY_EXISTS" in _refused(node, "topic", "create", topic, exit_code=1)
    assert node.ok("topic", "create", topic, "--if-not-exists") == f"topic {topic} already exists\n"
    assert node.ok("topic", "delete", "absent", "--if-exists") == "there is no topic absent\n"


def test_of_several_topics_the_good_ones_are_made(node: RunningNode) -> None:
    done = node.run("topic", "create", "several-good", "not good")
    assert done.returncode == 1
    assert done.stdout == b"created topic several-good with 1 partition\n"
    assert b"'not good'" in done.stderr


# Produce and consume


def test_lines_go_in_and_come_out(node: RunningNode, topic: str) -> None:
    lines = "".join(f"line {number}\n" for number in range(2000))
    assert node.ok("produce", topic, "-p", "0", stdin=lines.encode()) == ""
    assert node.ok("consume", topic) == lines


def test_many_and_large_messages_go_in_batches_the_topic_takes(node: RunningNode, topic: str) -> None:
    node.ok("topic", "alter", topic, "--set", "max.message.bytes=50000")
    lines = [f"{number} " + "x" * 9000 for number in range(300)]
    node.ok("produce", topic, "-p", "1", stdin="\n".join(lines).encode())
    assert node.ok("consume", topic).splitlines() == lines
    text = _refused(node, "produce", topic, "-p", "1", stdin=b"y" * 60_000, exit_code=1)
    assert "MESSAGE_TOO_LARGE" in text
    assert "0 messages were written" in text


def test_keys_and_headers_are_kept(node: RunningNode, topic: str) -> None:
    node.ok("produce", topic, "-K", ":", "-H", "from=test", "-H", "empty=", stdin=b"k1:one\nk2:two:three\nk1:four\n")
    found = [json.loads(line) for line in node.ok("consume", topic, "-o", "json").splitlines()]
    assert sorted((item["key"], item["value"]) for item in found) == [("k1", "four"), ("k1", "one"), ("k2", "two:three")]
    assert {item["partition"] for item in found if item["key"] == "k1"} == {
        next(item["partition"] for item in found if item["value"] == "one")
    }
    assert found[0]["headers"] == [{"name": "from", "value": "test"}, {"name": "empty", "value": ""}]
    shown = node.ok("consume", topic, "--show", "key,headers", "--separator", "|")
    assert "k2|from=test,empty=\n" in shown


def test_bytes_that_are_no_text_survive(node: RunningNode, topic: str) -> None:
    raw = bytes(range(256))
    node.ok("produce", topic, "-p", "0", "--delimiter", r"\0--\0", stdin=raw + b"\0--\0" + raw)
    assert node.run("consume", topic, "-d", "").stdout == raw + raw
    assert node.ok("consume", topic, "--format", "hex", "-n", "1") == raw.hex() + "\n"
    node.ok("produce", topic, "-p", "1", "--format", "hex", raw.hex())
    assert node.run("consume", topic, "-p", "1", "-d", "").stdout == raw


def test_json_from_one_topic_goes_into_another(node: RunningNode, topic: str) -> None:
    node.ok("produce", topic, "-k", "key", "-H", "a=b", "one", "two")
    dump = node.ok("consume", topic, "--format", "json")
    node.ok("topic", "create", topic + "-copy", "--partitions", "3")
    assert json.loads(node.ok("produce", topic + "-copy", "--format", "json", "-o", "json", stdin=dump.encode()))["messages"] == 2
    copied = node.ok("consume", topic + "-copy", "-o", "json")
    assert copied.replace("-copy", "") == dump


def test_a_range_of_offsets_or_times_is_read(node: RunningNode, topic: str) -> None:
    stamped = [json.dumps({"value": str(number), "partition": 0, "timestamp_ms": 1_000_000 * number}) for number in range(10)]
    node.ok("produce", topic, "--format", "json", stdin="\n".join(stamped).encode())

    def read(*argv: str) -> str:
        return "".join(node.ok("consume", topic, "-p", "0", *argv).split())

    assert read("--from", "3", "--to", "6") == "345"
    assert read("--last", "2") == "89"
    assert read("--from", "1970-01-01T00:50:00Z", "--to", "1970-01-01T01:23:20Z") == "34"
    assert read("--from", "7", "--count", "2") == "78"
    assert read("--from", "latest") == ""
    assert read("--from", "99") == ""
    assert read("--from", "5m") == ""
    assert read("--to", "earliest") == ""


def test_following_goes_on_with_what_comes(node: RunningNode, topic: str) -> None:
    node.ok("produce", topic, "before")
    command = [*PENSTOCK, "consume", topic, "--follow", "--bootstrap", node.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"before\n"
        node.ok("produce", topic, "after")
        assert reader.stdout.readline() == b"after\n"
        reader.send_signal(signal.SIGINT)
        assert reader.wait(30) == 0
        assert reader.stdout.read() == b""


def test_following_ends_at_the_count(node: RunningNode, topic: str) -> None:
    node.ok("produce", topic, "-p", "0", "a", "b", "c")
    assert node.ok("consume", topic, "--follow", "-n", "2", "-p", "0") == "a\nb\n"


def test_a_message_from_a_slow_pipe_is_written_at_once(node: RunningNode, topic: str) -> None:
    command = [*PENSTOCK, "produce", topic, "--bootstrap", node.bootstrap]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment()) as writer:
        assert writer.stdin is not None
        writer.stdin.write(b"early\n")
        writer.stdin.flush()
        assert node.ok("consume", topic, "--follow", "-n", "1") == "early\n"
        writer.stdin.close()
        assert writer.wait(30) == 0


def test_a_reader_that_has_enough_is_no_error(node: RunningNode, topic: str) -> None:
    node.ok("produce", topic, "-p", "0", stdin=b"x" * 99 + b"\n" + (b"y" * 99 + b"\n") * 20_000)
    command = [*PENSTOCK, "consume", topic, "--bootstrap", node.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as reader:
        assert reader.stdout is not None
        assert reader.stderr is not None
        reader.stdout.read(100)
        reader.stdout.close()
        assert reader.stderr.read() == b""
        assert reader.wait(30) == 0


def test_a_topic_is_made_when_it_is_first_written_to(node: RunningNode) -> None:
    node.ok("produce", "made-by-writing", "hello")
    assert node.ok("consume", "made-by-writing") == "hello\n"
    assert "there is no topic 'not-by-reading'" in _refused(node, "consume", "not-by-reading", exit_code=1)


@pytest.mark.parametrize(
    ("argv", "stdin", "words"),
    [
        (["-p", "9"], b"x\n", "has partitions 0..2, not 9"),
        (["-K", ":"], b"a:b\nab\n", "message 2 of the input: there is no key separator ':'"),
        (["--format", "json"], b"{}\n{]\n", "message 2 of the input: it is not JSON"),
        (["--format", "hex"], b"zz\n", "it is not hexadecimal"),
        (["--delimiter", ""], b"", "--delimiter must not be empty"),
    ],
)
def test_bad_input_to_produce_is_told(node: RunningNode, topic: str, argv: list[str], stdin: bytes, words: str) -> None:
    assert words in _refused(node, "produce", topic, *argv, stdin=stdin, exit_code=2)


def test_a_partition_that_is_not_there_cannot_be_read(node: RunningNode, topic: str) -> None:
    assert "has partitions 0..2, not 3" in _refused(node, "consume", topic, "-p", "3", exit_code=2)


def test_output_that_cannot_be_written_is_told(node: RunningNode, topic: str) -> None:
    node.ok("produce", topic, "x")
    with Path("/dev/full").open("wb") as full:
        command = [*PENSTOCK, "consume", topic, "--bootstrap", node.bootstrap]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=environment(), timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr == b"penstock consume: [Errno 28] No space left on device\n"


# Connections


def test_no_node_is_told_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for argv in (["topic", "list"], ["produce", "t", "x"], ["consume", "t"]):
        done = penstock(*argv, "--bootstrap", f"127.0.0.1:{port}", "--timeout", "2")
        assert done.returncode == 3
        assert f"cannot connect to 127.0.0.1:{port}: Connection refused".encode() in done.stderr
        assert b"`penstock up` starts one" in done.stderr


def test_a_host_that_is_not_known_is_told() -> None:
    done = penstock("topic", "list", "--bootstrap", "no-such-host.invalid:1", "--timeout", "5")
    assert done.returncode == 3
    assert b"cannot connect to no-such-host.invalid:1" in done.stderr


def test_something_that_does_not_answer_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        done = penstock("topic", "list", "--bootstrap", f"127.0.0.1:{silent.getsockname()[1]}", "--timeout", "0.5")
    assert done.returncode == 3
    assert b"did not answer ApiVersions within 0.5 s" in done.stderr


def test_something_that_is_no_kafka_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = [*PENSTOCK, "topic", "list", "--bootstrap", f"127.0.0.1:{server.getsockname()[1]}"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment()) as client:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                assert client.wait(30) == 1
            assert client.stderr is not None
            assert b"is it the right port?" in client.stderr.read()


def test_the_first_address_that_answers_is_used(node: RunningNode) -> None:
    assert penstock("topic", "list", "--bootstrap", f"127.0.0.1:1,{node.bootstrap}").returncode == 0


def test_a_writer_outlives_a_restart_and_writes_each_message_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    argv = ["--data-dir", str(tmp_path / "data"), "--kafka-port", port]
    lines = [f"m{number}\n" for number in range(400)]
    with running_node(tmp_path / "log", argv) as node:
        node.ok("topic", "create", "t")
        command = [*PENSTOCK, "produce", "t", "--bootstrap", node.bootstrap, "--timeout", "30"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment()) as writer:
            assert writer.stdin is not None
            writer.stdin.write(lines[0].encode())
            writer.stdin.flush()
            assert node.ok("consume", "t", "-F", "-n", "1") == lines[0]
            for number, line in enumerate(lines[1:]):
                writer.stdin.write(line.encode())
                writer.stdin.flush()
                time.sleep(0.001)
                if number == 200:
                    node.kill()
            with running_node(tmp_path / "log", argv) as again:
                writer.stdin.close()
                assert writer.wait(60) == 0
                assert again.ok("consume", "t") == "".join(lines)


# Terminals


def _on_terminal(node: RunningNode, argv: list[str], typed: bytes = b"") -> tuple[int, str]:
    """Run a command on a terminal of its own; its exit code, and all that appeared there."""
    variables = environment({"PENSTOCK_BOOTSTRAP": node.bootstrap, "COLUMNS": "100"})
    master, slave = pty.openpty()
    with subprocess.Popen([*PENSTOCK, *argv], stdin=slave, stdout=slave, stderr=slave, env=variables) as process:
        os.close(slave)
        os.write(master, typed)
        seen = b""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                if select.select([master], [], [], 0.2)[0]:
                    data = os.read(master, 1 << 16)
                    if not data:
                        break
                    seen += data
                elif process.poll() is not None:
                    break
            except OSError:  # the other side is closed
                break
        code = process.wait(30)
    os.close(master)
    return code, seen.decode().replace("\r\n", "\n")


def test_a_terminal_gets_a_table(node: RunningNode, topic: str) -> None:
    code, seen = _on_terminal(node, ["topic", "list", "--prefix", topic])
    assert code == 0
    heading, row = seen.splitlines()
    words = heading.removeprefix("\x1b[1m").removesuffix("\x1b[0m").split()
    assert words == ["NAME", "PARTITIONS", "SIZE", "RETENTION", "RETENTION", "BYTES"]
    assert row.split() == [topic, "3", "0", "B", "7", "d"]


def test_deleting_asks_on_a_terminal(node: RunningNode, topic: str) -> None:
    code, seen = _on_terminal(node, ["topic", "delete", topic], b"n\n")
    assert code == 1
    assert f"Delete {topic} with all their messages? [y/N]" in seen
    assert "nothing was deleted" in seen
    code, seen = _on_terminal(node, ["topic", "delete", topic], b"y\n")
    assert code == 0
    assert f"deleted topic {topic}" in seen


def test_yes_is_not_asked(node: RunningNode, topic: str) -> None:
    code, seen = _on_terminal(node, ["topic", "delete", topic, "--yes"])
    assert (code, seen) == (0, f"deleted topic {topic}\n")


# One address for all commands, and profiles


@pytest.fixture(scope="module")
def whole_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A node with a console, a topic and a group that is ten messages behind."""
    folder = tmp_path_factory.mktemp("whole")
    with running_node(folder / "log", ["--data-dir", str(folder / "data"), "--http-port", "0"]) as running:
        running.ok("produce", "orders", *["x"] * 10)
        running.ok("group", "reset", "billing", "--topic", "orders", "--to", "earliest", "--yes")
        yield running


def test_commands_of_the_admin_api_find_it_by_the_bootstrap_address(whole_node: RunningNode) -> None:
    assert f"kafka {whole_node.bootstrap}" in whole_node.ok("status")
    assert "orders" in whole_node.ok("top")
    eventually(lambda: "billing" in whole_node.ok("top"))  # the lag of groups is looked at once a second


def test_a_node_without_the_listener_says_what_to_set(node: RunningNode) -> None:
    assert "set http_port of the node, or give --http" in _refused(node, "status", exit_code=1)


def test_a_profile_names_the_server_for_all_commands(whole_node: RunningNode, tmp_path: Path) -> None:
    variables = {"XDG_CONFIG_HOME": str(tmp_path)}
    made = penstock("profile", "create", "here", "--bootstrap", whole_node.bootstrap, variables=variables)
    assert made.returncode == 0, made.stderr
    consumed = penstock("consume", "orders", "-n", "2", "-f", r"%t %p %o %s\n", variables=variables)
    assert consumed.stdout == b"orders 0 0 x\norders 0 1 x\n"
    listed = penstock("group", "list", "--no-headers", variables=variables)
    assert listed.stdout == b"billing\tclassic\tEmpty\t10\n"
    assert b"orders" in penstock("top", "--profile", "here", variables=variables).stdout
    gone = penstock("profile", "delete", "here", variables=variables)
    assert gone.stdout == b"deleted profile here\n"
