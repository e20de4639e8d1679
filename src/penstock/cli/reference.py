"""The reference pages of commands and settings, made from the code: `python -m penstock.cli.reference`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path

from penstock.broker import TOPIC_CONFIG_KEYS
from penstock.cli.client_options import client_options
from penstock.cli.command_parser import CommandParser
from penstock.cli.exit_codes import MEANINGS
from penstock.cli.kafka_reference import kafka_page
from penstock.cli.main import COMMANDS, module_of
from penstock.server import SETTINGS

MADE = "<!-- Made by `python -m penstock.cli.reference`; change the code, then run it again. -->"

CONFIGURATION_TOP = """\
A node needs no configuration. Settings come from four places, each overriding the ones before it:

1. the defaults below,
2. `penstock.toml` in the working directory, or the file that `--config` or `PENSTOCK_CONFIG` names,
3. `PENSTOCK_…` environment variables,
4. options of `penstock up`.

A setting has one name everywhere: `kafka_port` in the file is `PENSTOCK_KAFKA_PORT` in the environment and `--kafka-port` on the
command line. An unknown key or variable, or an invalid value, keeps the node from starting, with a message
that names the place (exit code 2). A relative path is relative to its file, otherwise to the working directory.
`disks` is a list in the file, separated by `:` in the environment, and on the command line `--disk` is repeated.

```toml
# penstock.toml
data_dir = "/var/lib/penstock"
host = "0.0.0.0"
advertised_host = "queue.example.org"
kafka_port = 9092
```
"""

DIRECTORY_TEXT = """\
The data directory records what it was created with: cluster id, node id, erasure and disks. Later starts may omit these
settings; a start with other values is refused (exit code 6) and changes nothing. Every disk has an identity of its own, so a disk
of another node, or in the wrong order, is detected before anything is written. A disk may be moved to another path. An empty
directory in place of a lost disk is rebuilt from the others, as far as the erasure allows. Only one process at a time can use a
data directory; a second is refused (exit code 4).
"""


def cli_page() -> str:
    """The page of all commands."""
    lines = [MADE, "# Commands", "", "`penstock COMMAND --help` shows the same.", ""]
    for name in COMMANDS:
        lines += _command(import_module(module_of(name)).parser())
    lines += ["## Connection and output", "", *_options(client_options()._actions), _OUTPUT_TEXT]
    lines += ["## Exit codes", "", "| Code | Meaning |", "|---:|---|"]
    lines += (f"| {code.value} | {meaning} |" for code, meaning in MEANINGS.items())
    return "\n".join(lines) + "\n"


def configuration_page() -> str:
    """The page of all settings."""
    lines = [MADE, "# Configuration", "", CONFIGURATION_TOP, "## Settings of a node", ""]
    lines += ["| Setting | Takes | Default | What it is for |", "|---|---|---|---|"]
    lines += (
        f"| `{setting.key}` | {_cell(setting.kind.allowed)} | {_cell(setting.default)} | {_cell(setting.doc)} |"
        for setting in SETTINGS.values()
    )
    lines += ["", "## The data directory", "", DIRECTORY_TEXT, "## Configuration of a topic", ""]
    lines += ["Set with `penstock topic create --config` or `penstock topic alter --set`, or by any Kafka client.", ""]
    lines += ["| Key | Default | What it is for |", "|---|---|---|"]
    lines += (
        f"| `{name}` | {_cell(key.default) or 'empty'} | {_cell(key.doc)} |" for name, key in sorted(TOPIC_CONFIG_KEYS.items())
    )
    return "\n".join(lines) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli_page,
    "configuration.md": configuration_page,
    "kafka.md": partial(kafka_page, MADE),
}

_SHARED = frozenset(action.dest for action in client_options()._actions)

_OUTPUT_TEXT = """\
Results go to standard output: tables on a terminal, tab-separated lines in a pipe, JSON with `-o json`. The first line of a table
has the column names, unless `--no-headers` is given. Sizes and durations have units on a terminal, and are bytes and milliseconds
in a pipe. Errors, logs and progress go to standard error; progress is shown only on a terminal. `NO_COLOR` turns colours off.

One address is enough for every command: those that use the admin API or streams ask the node at `--bootstrap` for the address of
these listeners. Users who may not describe the configuration of the cluster name them with `--http` and `--stream`, or with
`PENSTOCK_HTTP` and `PENSTOCK_STREAM`. Options override variables, which override the profile. The current profile applies only if
neither options nor variables name a server, so that its password is never sent to another one.
"""


def main() -> int:
    """Write the pages into a folder."""
    parser = argparse.ArgumentParser(prog="python -m penstock.cli.reference", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("docs/reference"))
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")
        print(folder / name)
    return 0


def _command(parser: argparse.ArgumentParser, depth: int = 2) -> Iterator[str]:
    yield "#" * depth + f" {parser.prog}"
    yield ""
    yield _cell(parser.description or "")
    yield ""
    nested = next((action for action in parser._actions if isinstance(action, argparse._SubParsersAction)), None)
    if nested is not None:
        for subparser in nested.choices.values():
            yield from _command(subparser, depth + 1)
        return
    talks = any(action.dest == "bootstrap" for action in parser._actions)
    yield from _options([action for action in parser._actions if not (talks and action.dest in _SHARED)])
    if talks:
        yield "And those of [every command that talks to a node](#connection-and-output)."
        yield ""
    if isinstance(parser, CommandParser) and (examples := parser.examples()):
        yield "```sh"
        yield from (f"{command}  # {remark}" if remark else command for command, remark in examples)
        yield "```"
        yield ""


def _options(actions: list[argparse.Action]) -> Iterator[str]:
    yield "| Option | |"
    yield "|---|---|"
    for action in actions:
        if action.dest != "help" and action.help != argparse.SUPPRESS:
            yield f"| `{_cell(_usage(action))}` | {_cell((action.help or '').replace('%%', '%'))} |"
    yield ""


def _usage(action: argparse.Action) -> str:
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if not metavar and action.choices is not None:
        metavar = "{" + ",".join(map(str, action.choices)) + "}"
    if not metavar and action.nargs != 0:
        metavar = action.dest.upper()
    if not action.option_strings:
        return {"+": f"{metavar} …", "*": f"[{metavar} …]"}.get(str(action.nargs), metavar)
    return f"{', '.join(action.option_strings)} {metavar}".rstrip()


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
