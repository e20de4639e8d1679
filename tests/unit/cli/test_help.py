"""The help of every command: it has examples, and colours only where they are wanted."""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterator
from importlib import import_module

import pytest

from penstock.cli.command_parser import CommandParser
from penstock.cli.examples import EXAMPLES
from penstock.cli.exit_codes import ExitCode
from penstock.cli.main import COMMANDS, main, module_of
from penstock.cli.output import Output, Size


def _leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not nested:
        yield parser
    for action in nested:
        for below in action.choices.values():
            yield from _leaves(below)


def test_every_command_has_examples_and_every_example_a_command() -> None:
    leaves = [leaf for name in COMMANDS for leaf in _leaves(import_module(module_of(name)).parser())]
    assert [leaf.prog for leaf in leaves if not (isinstance(leaf, CommandParser) and leaf.examples())] == []
    assert {leaf.prog.removeprefix("penstock ") for leaf in leaves} | {""} == set(EXAMPLES)
    shown = next(leaf for leaf in leaves if leaf.prog == "penstock consume").format_help()
    assert "examples:\n  penstock consume orders --follow" in shown


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("variable", ["", "1"])
def test_no_color_turns_colours_off(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", variable)
    out = _Terminal()
    Output(as_json=False, stream=out).rows(("size",), [(Size(2048),)])
    assert out.getvalue().splitlines()[0] == ("   SIZE" if variable else "\x1b[1m   SIZE\x1b[0m")
    assert out.getvalue().splitlines()[1] == "2.0 KiB"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["up", "--kafka-prt", "1"], "there is no option --kafka-prt; did you mean --kafka-port?"),
        (["topic", "create", "t", "--partitons=3"], "there is no option --partitons; did you mean --partitions?"),
        (["topic", "lst"], "did you mean 'list'?"),
        (["group", "list", "-o", "jsn"], "did you mean 'json'?"),
        (["topic", "create", "t", "--config", "retention.ms=3dd"], "'3dd' is not a duration such as 90s, 15m or 7d"),
        (["topic", "alter", "t", "--set", "retention.bytes=10GX"], "'10GX' is not a size such as 512KiB"),
        (["topic", "list", "--qqq"], "there is no option --qqq\n"),
        (["topic", "alter", "t", "--config", "a=b"], "this subcommand has no option --config; its --help lists those it has"),
        (["topic", "list", "more"], "unrecognized arguments: more"),
    ],
)
def test_an_unknown_option_is_answered_with_the_nearest(argv: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(argv)
    assert words in capsys.readouterr().err


def test_a_long_usage_does_not_hide_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["up", "--zzz"])
    assert capsys.readouterr().err == "penstock up: error: there is no option --zzz; `penstock up --help` lists the options\n"


def test_without_a_command_all_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == ExitCode.USAGE
    assert "send live data through a broker" in capsys.readouterr().err
