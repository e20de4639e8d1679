"""`penstock stream`: its subcommands and their options."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.cli.client_options import INT32_MAX, SECONDS_MAX, count, seconds, sequence, whole
from penstock.cli.output import Output

ADDRESS_VARIABLE: Final = "PENSTOCK_STREAM"
DEFAULT_ADDRESS: Final = "127.0.0.1:50051"


def parser() -> argparse.ArgumentParser:
    """A subparser for everything that can be done with streams."""
    made = argparse.ArgumentParser(
        prog="penstock stream", description="Publish, read, follow and acknowledge messages of subjects."
    )
    actions = made.add_subparsers(dest="action", required=True, metavar="action")
    parent = _stream_options()

    def action(name: str, summary: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".", parents=[parent])

    publish = action("publish", "publish files, or each line of standard input, and print the sequences")
    publish.add_argument("subject", metavar="SUBJECT")
    publish.add_argument("files", nargs="*", type=Path, metavar="FILE", help="files to publish, each as one message of any size")
    publish.add_argument(
        "-H", "--header", action="append", type=_header, default=[], metavar="NAME=VALUE", help="may be repeated"
    )
    fetch = action("fetch", "print messages from a sequence on, or what a durable consumer has not acknowledged")
    fetch.add_argument("subject", metavar="SUBJECT", help="a subject, or a pattern: * is one word, > all that follow")
    where = fetch.add_mutually_exclusive_group()
    where.add_argument("--from", dest="begin", type=sequence, default=1, metavar="SEQUENCE", help="where to begin (default: 1)")
    where.add_argument("--durable", metavar="NAME", help="begin after what this consumer has acknowledged")
    fetch.add_argument("-n", "--limit", type=count, default=100, metavar="N", help="at most so many (default: 100)")
    fetch.add_argument("--ack", action="store_true", help="acknowledge what was printed, for the consumer of --durable")
    follow = action("follow", "print messages as they come, until interrupted")
    follow.add_argument("subject", metavar="SUBJECT", help="a subject, or a pattern: * is one word, > all that follow")
    follow.add_argument(
        "--from", dest="begin", type=sequence, metavar="SEQUENCE", help="where to begin (default: what comes now)"
    )
    follow.add_argument("-n", "--limit", type=count, default=0, metavar="N", help="end after so many")
    download = action("download", "write the payload of a message to a file")
    download.add_argument("sequence", type=sequence, metavar="SEQUENCE")
    download.add_argument("file", type=Path, metavar="FILE")
    _consumer_actions(action)
    init = actions.add_parser(
        "init-tarantool",
        help="make the spaces, indexes and functions of streams in a Tarantool, or bring the functions up to date",
        description="Make the spaces, indexes and functions of streams in a Tarantool, or bring the functions up to date.",
    )
    init.add_argument("url", metavar="URL", help="tarantool://user:password@host:port; the user needs all rights for this")
    return made


def _consumer_actions(action: Callable[[str, str], argparse.ArgumentParser]) -> None:
    consumers = action("consumers", "list the durable consumers of a subject, also by patterns, and their positions")
    consumers.add_argument("subject", metavar="SUBJECT", help="a subject, or a pattern, such as > for all consumers there are")
    ack = action("ack", "acknowledge a message and all before it")
    ack.add_argument("subject", metavar="SUBJECT")
    ack.add_argument("durable", metavar="NAME", help="the durable consumer")
    ack.add_argument("sequence", type=sequence, metavar="SEQUENCE")
    ack.add_argument("--rewind", action="store_true", help="move the position back, too")
    configure = action("configure", "say how messages are shared by the members of a durable consumer")
    configure.add_argument("subject", metavar="SUBJECT")
    configure.add_argument("durable", metavar="NAME", help="the durable consumer")
    configure.add_argument(
        "--ack-wait",
        type=_ack_wait,
        required=True,
        metavar="SECONDS",
        help="how long a member may take for a message before another gets it; 0: every member is shown all",
    )
    configure.add_argument(
        "--tries",
        type=whole("number of tries", 0, INT32_MAX),
        default=0,
        metavar="N",
        help="how many times it is tried (default: for ever)",
    )
    configure.add_argument("--dead-letter", default="", metavar="SUBJECT", help="where a message goes after the last try")


def run(argv: list[str]) -> int:
    """Carry out one subcommand."""
    arguments = parser().parse_args(argv)
    if arguments.action == "init-tarantool":
        from penstock.cli.stream_tarantool import init_tarantool

        return init_tarantool(arguments.url)
    from penstock.cli.stream_actions import run_action

    return run_action(arguments, Output(as_json=arguments.output == "json"))


def _stream_options() -> argparse.ArgumentParser:
    parent = argparse.ArgumentParser(add_help=False)
    group = parent.add_argument_group("connection and output")
    group.add_argument(
        "--stream",
        metavar="HOST:PORT",
        default=None,
        help=f"the stream listener of a node (default: {ADDRESS_VARIABLE}, or {DEFAULT_ADDRESS})",
    )
    group.add_argument(
        "--user", metavar="NAME", default=None, help="who to sign in as, where a node asks (default: PENSTOCK_USER)"
    )
    group.add_argument("--password-file", metavar="FILE", default=None, help="a file with the password of the user")
    group.add_argument(
        "--tls-ca",
        metavar="FILE",
        default=None,
        help="speak TLS, and trust the certificates in this PEM file (default: PENSTOCK_TLS_CA, or no TLS)",
    )
    group.add_argument(
        "--timeout", type=seconds, metavar="SECONDS", default=15.0, help="how long to try to get an answer (default: 15)"
    )
    group.add_argument("-o", "--output", choices=("text", "json"), default="text", help="how results are written (default: text)")
    return parent


def _ack_wait(text: str) -> float:
    number = float(text)
    if not 0 <= number <= SECONDS_MAX:
        raise ValueError(text)
    return number


_ack_wait.__name__ = "number of seconds"


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value
