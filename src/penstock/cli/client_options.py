"""Options that every command talking to a node has, and the client they describe."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.cli.command_parser import CommandParser
from penstock.cli.connection import (
    ADDRESS_VARIABLES,
    DEFAULTS,
    PASSWORD_VARIABLE,
    TLS_CA_VARIABLE,
    USER_VARIABLE,
    Connection,
    Kind,
)
from penstock.cli.failure import usage
from penstock.client.units import topic_setting

if TYPE_CHECKING:
    from penstock.cli.kafka_client import CommandClient

SECONDS_MAX: Final = 1e9  # thirty years; clocks of operating systems end not far above
INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


def client_options() -> CommandParser:
    """A parent parser with the options."""
    parent = CommandParser(add_help=False)
    group = parent.add_argument_group("connection and output")
    group.add_argument(
        "--bootstrap",
        metavar="HOST:PORT",
        default=None,
        help="addresses of one or more nodes, separated by commas (default: PENSTOCK_BOOTSTRAP, the current profile, or "
        f"{DEFAULTS['bootstrap']})",
    )
    group.add_argument(
        "--profile",
        metavar="NAME",
        default=None,
        help="a server saved by `penstock profile create` (default: PENSTOCK_PROFILE, or the current profile)",
    )
    group.add_argument(
        "--user",
        metavar="NAME",
        default=None,
        help=f"the user to sign in as, if the node requires it (default: {USER_VARIABLE}, or that of the profile). The password "
        f"is taken from {PASSWORD_VARIABLE}, a file or the profile",
    )
    group.add_argument("--password-file", metavar="FILE", default=None, help="a file that contains the password")
    group.add_argument(
        "--tls-ca",
        metavar="FILE",
        default=None,
        help=f"use TLS, and trust the certificates in this PEM file (default: {TLS_CA_VARIABLE}, or that of the profile)",
    )
    group.add_argument(
        "--timeout", type=seconds, metavar="SECONDS", default=15.0, help="timeout of a request, including retries (default: 15)"
    )
    output_options(group)
    return parent


def output_options(to: argparse._ArgumentGroup) -> None:
    """Adds the options of `Output`."""
    to.add_argument("-o", "--output", choices=("text", "json"), default="text", help="output format (default: text)")
    to.add_argument("--no-headers", action="store_true", help="print tables without the line of column names")


def http_options() -> CommandParser:
    """A parent parser with the options of commands that use the admin API."""
    return _with_address("http", "URL", "the HTTP listener of a node")


def add_registry_option(command: argparse.ArgumentParser) -> None:
    """Adds the option that names another schema registry than that of the node."""
    command.add_argument(
        "--registry", metavar="URL", help="the address of another schema registry (default: that of the node's HTTP listener)"
    )
    add_sign_in_options(command, "registry", "verify the certificate of an https address with this PEM file")


def add_sign_in_options(command: argparse.ArgumentParser, server: str, tls: str) -> None:
    """Adds the options that sign in to a server which the option `--SERVER` names; those of the node do not apply to it."""
    command.add_argument(
        f"--{server}-user",
        metavar="NAME",
        help=f"the user to sign in as at --{server} (default: none; the node's user is not used there). The password is taken "
        f"from PENSTOCK_{server.upper()}_PASSWORD or a file",
    )
    command.add_argument(f"--{server}-password-file", metavar="FILE", help="a file that contains the password of that user")
    command.add_argument(f"--{server}-tls-ca", metavar="FILE", help=tls)


def stream_options() -> CommandParser:
    """A parent parser with the options of commands that use streams."""
    return _with_address("stream", "HOST:PORT", "the stream listener of a node")


def _with_address(kind: Kind, metavar: str, doc: str) -> CommandParser:
    parent = client_options()
    parent._action_groups[-1].add_argument(
        f"--{kind}",
        metavar=metavar,
        default=None,
        help=f"{doc} (default: {ADDRESS_VARIABLES[kind]}, or what the node at --bootstrap says; {DEFAULTS[kind]} without any)",
    )
    return parent


def make_client(arguments: argparse.Namespace) -> CommandClient:
    """The client that the options ask for; it connects when it is first used."""
    return Connection(arguments).client()


def seconds(text: str) -> float:
    """A number of seconds above 0."""
    number = float(text)
    if not 0 < number <= SECONDS_MAX:
        raise ValueError(text)
    return number


def whole(kind: str, low: int, high: int) -> Callable[[str], int]:
    """What reads a whole number within bounds, as far as a request can say it."""

    def read(text: str) -> int:
        number = int(text)
        if not low <= number <= high:
            raise ValueError(text)
        return number

    read.__name__ = kind  # as argparse calls it
    return read


count: Final = whole("count", 1, INT64_MAX)
partition_count: Final = whole("number of partitions", 1, INT32_MAX)
replication_factor: Final = whole("replication factor", 1, INT16_MAX)
partition: Final = whole("partition number", 0, INT32_MAX)
sequence: Final = whole("sequence", 0, INT64_MAX)  # of streams; 0 is before all of them


def pair(text: str) -> tuple[str, str]:
    """`name=value`."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError(text)
    return name, value


def topic_config(text: str) -> tuple[str, str]:
    """`name=value` of a topic's configuration; values of .ms keys may be durations, those of bytes keys sizes."""
    name, value = pair(text)
    converted = topic_setting(name, value)
    if name.endswith((".ms", "bytes")) and not converted.lstrip("-").isdigit():
        what = "a duration such as 90s, 15m or 7d" if name.endswith(".ms") else "a size such as 512KiB, 10GiB or 5GB"
        raise argparse.ArgumentTypeError(f"{name}: {value!r} is not {what}, nor a whole number")
    return name, converted


topic_config.__name__ = "configuration"  # as argparse names it when there is something wrong with one


def separator(text: str) -> bytes:
    r"""Characters between fields or messages, with \n, \t, \r, \0, \\ and \xHH for those that are hard to type."""
    try:
        return _ESCAPE.sub(_unescape, text).encode("utf-8", "surrogateescape")
    except KeyError:
        raise ValueError(text) from None


def required(separator_bytes: bytes, option: str) -> bytes:
    """A separator that is not empty."""
    if not separator_bytes:
        raise usage(f"{option} must not be empty")
    return separator_bytes


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code[1:], 16)) if len(code) == 3 else _ESCAPED[code]


# argparse names a value's kind by the function that reads it.
seconds.__name__ = "number of seconds"
pair.__name__ = "NAME=VALUE pair"
