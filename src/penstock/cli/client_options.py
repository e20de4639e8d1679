"""Options that every command talking to a node has, and the client they describe."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.cli.failure import usage
from penstock.cli.sizes import duration_ms, size_bytes

if TYPE_CHECKING:
    from penstock.cli.kafka_client import CommandClient
    from penstock.cli.sign_in import Identity

BOOTSTRAP_VARIABLE: Final = "PENSTOCK_BOOTSTRAP"
USER_VARIABLE: Final = "PENSTOCK_USER"
PASSWORD_VARIABLE: Final = "PENSTOCK_PASSWORD"
TLS_CA_VARIABLE: Final = "PENSTOCK_TLS_CA"
SECONDS_MAX: Final = 1e9  # thirty years; clocks of operating systems end not far above
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


def client_options() -> argparse.ArgumentParser:
    """A parent parser with the options."""
    parent = argparse.ArgumentParser(add_help=False)
    group = parent.add_argument_group("connection and output")
    group.add_argument(
        "--bootstrap",
        metavar="HOST:PORT",
        default=None,
        help=f"addresses of one or more nodes, separated by commas (default: {BOOTSTRAP_VARIABLE}, or 127.0.0.1:9092)",
    )
    group.add_argument(
        "--user",
        metavar="NAME",
        default=None,
        help=f"the user to sign in as, if the node requires it (default: {USER_VARIABLE}, or none). The password is taken from "
        f"{PASSWORD_VARIABLE} or a file",
    )
    group.add_argument("--password-file", metavar="FILE", default=None, help="a file that contains the password")
    group.add_argument(
        "--tls-ca",
        metavar="FILE",
        default=None,
        help=f"use TLS, and trust the certificates in this PEM file (default: {TLS_CA_VARIABLE}, or no TLS)",
    )
    group.add_argument(
        "--timeout", type=seconds, metavar="SECONDS", default=15.0, help="timeout of a request, including retries (default: 15)"
    )
    group.add_argument("-o", "--output", choices=("text", "json"), default="text", help="output format (default: text)")
    return parent


def make_client(arguments: argparse.Namespace) -> CommandClient:
    """The client that the options ask for; it connects when it is first used."""
    from penstock.cli.kafka_client import DEFAULT_BOOTSTRAP, CommandClient

    bootstrap = arguments.bootstrap or os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP
    return CommandClient(bootstrap, arguments.timeout, identity_of(arguments))


def identity_of(arguments: argparse.Namespace) -> Identity:
    """Who the command is, by its options and the environment."""
    from penstock.cli.sign_in import Identity

    user = arguments.user or os.environ.get(USER_VARIABLE)
    tls_ca = arguments.tls_ca or os.environ.get(TLS_CA_VARIABLE)
    if user is None:
        if arguments.password_file is not None:
            raise usage("--password-file needs --user")
        return Identity(tls_ca=tls_ca)
    return Identity(user, _password(user, arguments.password_file), tls_ca)


def _password(user: str, file: str | None) -> str:
    if file is not None:
        try:
            return Path(file).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise usage(f"--password-file: {file} cannot be read: {error}") from error
    password = os.environ.get(PASSWORD_VARIABLE)
    if password is None:
        raise usage(f"user {user!r} has no password here; set {PASSWORD_VARIABLE} or give --password-file")
    return password


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
    if value == "unlimited" and name.startswith("retention."):
        return name, "-1"
    try:
        if name.endswith(".ms"):
            return name, str(duration_ms(value))
        if name.endswith("bytes"):
            return name, str(size_bytes(value))
    except ValueError:
        pass  # a plain number, or what the node will refuse with its reason
    return name, value


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
