"""`penstock stream`: its subcommands and their options."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from penstock.cli.client_options import INT32_MAX, SECONDS_MAX, count, sequence, stream_options, whole
from penstock.cli.command_parser import CommandParser
from penstock.cli.output import Output


def parser() -> argparse.ArgumentParser:
    """A subparser for everything that can be done with streams."""
    command = CommandParser(prog="penstock stream", description="Publish, read, follow and acknowledge messages of subjects.")
    actions = command.add_subparsers(dest="action", required=True, metavar="action")
    parent = stream_options()

    def action(name: str, summary: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".", parents=[parent])

    publish = action("publish", "publish files, or each line of standard input, and print the sequence numbers")
    publish.add_argument("subject", metavar="SUBJECT")
    publish.add_argument("files", nargs="*", type=Path, metavar="FILE", help="files to publish, each as one message of any size")
    publish.add_argument(
        "-H", "--header", action="append", type=_header, default=[], metavar="NAME=VALUE", help="may be repeated"
    )
    fetch = action("fetch", "print messages from a sequence number on, or those that a durable consumer has not acknowledged")
    fetch.add_argument("subject", metavar="SUBJECT", help="a subject or a pattern: * matches one token, > all following tokens")
    where = fetch.add_mutually_exclusive_group()
    where.add_argument(
        "--from", dest="begin", type=sequence, default=1, metavar="SEQUENCE", help="the first sequence number (default: 1)"
    )
    where.add_argument("--durable", metavar="NAME", help="start after the last message that this consumer has acknowledged")
    fetch.add_argument("-n", "--limit", type=count, default=100, metavar="N", help="print at most N messages (default: 100)")
    fetch.add_argument("--ack", action="store_true", help="acknowledge the printed messages for the consumer of --durable")
    follow = action("follow", "print messages as they arrive, until interrupted")
    follow.add_argument("subject", metavar="SUBJECT", help="a subject or a pattern: * matches one token, > all following tokens")
    follow.add_argument(
        "--from", dest="begin", type=sequence, metavar="SEQUENCE", help="the first sequence number (default: only new messages)"
    )
    follow.add_argument("-n", "--limit", type=count, default=0, metavar="N", help="stop after N messages")
    download = action("download", "write the payload of a message to a file")
    download.add_argument("sequence", type=sequence, metavar="SEQUENCE")
    download.add_argument("file", type=Path, metavar="FILE")
    _consumer_actions(action)
    init = actions.add_parser(
        "init-tarantool",
        help="create the spaces, indexes and functions of streams in a Tarantool, or update the functions",
        description="Create the spaces, indexes and functions of streams in a Tarantool, or update the functions.",
    )
    init.add_argument("url", metavar="URL", help="tarantool://user:password@host:port; the user needs all privileges")
    return command


def _consumer_actions(action: Callable[[str, str], argparse.ArgumentParser]) -> None:
    consumers = action("consumers", "list the durable consumers of a subject or pattern, and their positions")
    consumers.add_argument("subject", metavar="SUBJECT", help="a subject or a pattern, such as > for all")
    ack = action("ack", "acknowledge a message and all messages before it")
    ack.add_argument("subject", metavar="SUBJECT")
    ack.add_argument("durable", metavar="NAME", help="the durable consumer")
    ack.add_argument("sequence", type=sequence, metavar="SEQUENCE")
    ack.add_argument("--rewind", action="store_true", help="also allow moving the position back")
    configure = action("configure", "configure how the members of a durable consumer share messages")
    configure.add_argument("subject", metavar="SUBJECT")
    configure.add_argument("durable", metavar="NAME", help="the durable consumer")
    configure.add_argument(
        "--ack-wait",
        type=_ack_wait,
        required=True,
        metavar="SECONDS",
        help="redeliver a message to another member after this long without an acknowledgement; 0 delivers every "
        "message to every member",
    )
    configure.add_argument(
        "--tries",
        type=whole("number of tries", 0, INT32_MAX),
        default=0,
        metavar="N",
        help="the maximum number of deliveries (default: no limit)",
    )
    configure.add_argument(
        "--dead-letter", default="", metavar="SUBJECT", help="the subject for messages whose last delivery failed"
    )


def run(argv: list[str]) -> int:
    """Carry out one subcommand."""
    arguments = parser().parse_args(argv)
    if arguments.action == "init-tarantool":
        from penstock.cli.stream_tarantool import init_tarantool

        return init_tarantool(arguments.url)
    from penstock.cli.stream_actions import run_action

    return run_action(arguments, Output.of(arguments))


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
