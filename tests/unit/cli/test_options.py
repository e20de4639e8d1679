"""What commands take on their command lines."""

from __future__ import annotations

import io
import time

import pytest

from penstock.cli import consume, produce, stream, topic, up
from penstock.cli.failure import CommandError
from penstock.cli.kafka_client import CommandClient
from penstock.cli.main import main
from penstock.cli.output import Output
from penstock.cli.positions import EARLIEST, LATEST, Position, position
from penstock.kafka.client import Address
from penstock.server import SETTINGS


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("host", [Address("host", 9092)]),
        ("host:1", [Address("host", 1)]),
        ("a:1, b:2", [Address("a", 1), Address("b", 2)]),
        ("[::1]:5", [Address("::1", 5)]),
        ("[::1]", [Address("::1", 9092)]),
    ],
)
def test_addresses_are_read(text: str, addresses: list[Address]) -> None:
    assert list(CommandClient(text).options.bootstrap) == addresses


@pytest.mark.parametrize("text", ["", ",", ":1", "host:", "host:0", "host:65536", "host:port", "a:1:2", "[::1]x"])
def test_what_is_no_address_is_a_usage_error(text: str) -> None:
    if text == "host:":
        assert CommandClient(text).options.bootstrap == (Address("host", 9092),)
        return
    with pytest.raises(CommandError) as caught:
        CommandClient(text)
    assert caught.value.exit_code == 2


def test_positions_are_read() -> None:
    assert position("earliest") == Position(timestamp_ms=EARLIEST)
    assert position("latest") == Position(timestamp_ms=LATEST)
    assert position("42") == Position(offset=42)
    assert position("2026-07-31T12:00:00Z") == Position(timestamp_ms=1785499200000)
    assert position("2026-07-31T14:00:00+02:00") == Position(timestamp_ms=1785499200000)
    # Times before 1970 are before everything; below 0 they would mean other things, "nothing is as late" among them.
    assert position("30000d") == position("1969-12-31T23:59:59.999Z") == position("0001-01-03T00:00:00Z") == Position(None, 0)
    ago = position("15m").timestamp_ms
    assert ago is not None
    assert abs(time.time() * 1000 - 900_000 - ago) < 60_000


@pytest.mark.parametrize(
    "argv",
    [
        ["list", "extra"],
        ["create"],
        ["create", "t", "--partitions", "0"],
        ["create", "t", "--partitions", str(1 << 31)],
        ["create", "t", "--config", "novalue"],
        ["trim", "t"],
        ["trim", "t", "--before", "yesterday"],
        ["trim", "t", "--before", str(1 << 63)],
        ["add-partitions", "t"],
        ["list", "--timeout", "-1"],
        ["list", "--timeout", "1e300"],
        ["no-such-action"],
        [],
    ],
)
def test_wrong_usage_of_topic_exits_with_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        topic.parser().parse_args(argv)
    assert caught.value.code == 2
    assert "usage: penstock topic" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["t", "--from", "-5"],
        ["t", "--count", "0"],
        ["t", "--show", "value,colour"],
        ["t", "--from", "1", "--last", "2"],
        ["t", "--separator", r"\q"],
    ],
)
def test_wrong_usage_of_consume_exits_with_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        consume.parser().parse_args(argv)
    assert caught.value.code == 2
    assert "usage: penstock consume" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [[], ["t", "-k", "a", "-K", ":"], ["t", "-H", "x"], ["t", "-p", "-1"], ["t", "--format", "xml"]])
def test_wrong_usage_of_produce_exits_with_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        produce.parser().parse_args(argv)
    assert caught.value.code == 2
    assert "usage: penstock produce" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [
        ["ack", "s", "n", "-1"],
        ["ack", "s", "n", str(1 << 64)],
        ["fetch", "s", "--from", "-1"],
        ["fetch", "s", "--limit", "0"],
        ["download", "-1", "file"],
        ["configure", "s", "n", "--ack-wait", "nan"],
        ["configure", "s", "n", "--ack-wait", "1", "--tries", str(1 << 32)],
    ],
)
def test_wrong_usage_of_stream_exits_with_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        stream.parser().parse_args(argv)
    assert caught.value.code == 2
    assert "usage: penstock stream" in capsys.readouterr().err


def test_up_has_an_option_for_every_setting_but_secrets() -> None:
    open_settings = {key: setting for key, setting in SETTINGS.items() if not setting.is_secret}
    assert SETTINGS.keys() - open_settings.keys() == {"admin_password", "etcd_password"}
    argv = [word for setting in open_settings.values() for word in (setting.option, "x")]
    arguments = vars(up.parser().parse_args(argv))
    assert {key: arguments[key] for key in open_settings} == {
        key: ["x"] if setting.is_list else "x" for key, setting in open_settings.items()
    }
    with pytest.raises(SystemExit):
        up.parser().parse_args(["--admin-password", "x"])


def test_what_is_not_given_to_up_is_left_to_the_other_sources() -> None:
    assert not vars(up.parser().parse_args([])).keys() & SETTINGS.keys()


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_plain_lines_and_a_terminal_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    pipe, terminal = io.StringIO(), _Terminal()
    for out in (pipe, terminal):
        Output(as_json=False, stream=out).rows(("name", "count"), [("a", 5), ("long", 1234)])
    assert pipe.getvalue() == "NAME\tCOUNT\na\t5\nlong\t1234\n"
    assert terminal.getvalue() == "NAME  COUNT\na         5\nlong   1234\n"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("retention.ms=3d", "259200000"),
        ("retention.ms=259200000", "259200000"),
        ("retention.ms=unlimited", "-1"),
        ("retention.bytes=10GiB", "10737418240"),
        ("max.message.bytes=2MB", "2000000"),
        ("cleanup.policy=compact", "compact"),
    ],
)
def test_configurations_take_durations_and_sizes(text: str, value: str) -> None:
    (found,) = topic.parser().parse_args(["alter", "t", "--set", text]).configs
    assert found == (text.partition("=")[0], value)


def test_a_mistyped_command_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["topcs", "list"])
    assert caught.value.code == 2
    assert "there is no command 'topcs'; did you mean 'topic'?" in capsys.readouterr().err


def test_offset_is_another_name_of_from() -> None:
    assert consume.parser().parse_args(["t", "--offset", "17"]).begin == Position(offset=17)
