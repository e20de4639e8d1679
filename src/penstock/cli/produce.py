"""`penstock produce`: messages from arguments or standard input into a topic."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.cli.client_options import add_registry_option, http_options, make_client, pair, partition, required, separator
from penstock.cli.command_parser import CommandParser
from penstock.cli.exit_codes import ExitCode
from penstock.cli.failure import CommandError, as_command_error
from penstock.cli.message_input import FORMATS, InputFormat, read_pieces
from penstock.cli.output import Output, Progress
from penstock.client.messages import MessageDraft
from penstock.core.errors import PenstockError

if TYPE_CHECKING:
    from penstock.cli.producer import Producer

STANDARD_INPUT = 0


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    command = CommandParser(
        prog="penstock produce",
        description="Produce messages to a topic, from the command line or from standard input, one per line. When the "
        "command succeeds, every message is stored exactly once, even if the connection broke in between.",
        parents=[http_options()],
    )
    command.add_argument("topic", metavar="TOPIC")
    command.add_argument("messages", nargs="*", metavar="MESSAGE", help="the messages (default: read from standard input)")
    command.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help='format of a message: text, hex, or json: {"key": …, "value": …, "headers": {…}, "partition": …, '
        '"timestamp_ms": …}, with key_base64 and value_base64 for binary data (default: text)',
    )
    command.add_argument(
        "-d", "--delimiter", type=separator, default=b"\n", metavar="CHARS", help="separator after each message (default: \\n)"
    )
    keyed = command.add_mutually_exclusive_group()
    keyed.add_argument("-k", "--key", metavar="KEY", help="the key of every message")
    keyed.add_argument("-K", "--key-separator", type=separator, metavar="CHARS", help="separator between key and value")
    command.add_argument(
        "-H",
        "--header",
        type=pair,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a header of every message; may be repeated",
    )
    command.add_argument(
        "-p",
        "--partition",
        type=partition,
        metavar="N",
        help="the partition of every message (default: by the hash of the key; round-robin without a key)",
    )
    command.add_argument(
        "--schema",
        metavar="SUBJECT",
        help="write values, which are JSON, with the latest schema of this subject (Avro, JSON Schema, Protobuf)",
    )
    add_registry_option(command)
    return command


def run(argv: list[str]) -> int:
    """Write all messages; what was acknowledged is told even if not all were."""
    arguments = parser().parse_intermixed_args(argv)
    output = Output.of(arguments)
    form = _input_format(arguments)
    from penstock.cli.producer import Producer

    with make_client(arguments) as client:
        producer = Producer(client, arguments.topic)
        progress = Progress(shown=not arguments.messages and not os.isatty(STANDARD_INPUT))
        try:
            _send_all(producer, arguments, form, progress)
        except (CommandError, PenstockError) as error:
            failure = as_command_error(error)
            written = sum(producer.written.values())
            raise CommandError(f"{failure}; {written} messages were written before that", failure.exit_code) from error
        finally:
            progress.end()
    _report(producer, arguments.topic, output)
    return ExitCode.OK


def _input_format(arguments: argparse.Namespace) -> InputFormat:
    required(arguments.delimiter, "--delimiter")
    if arguments.key_separator is not None:
        required(arguments.key_separator, "--key-separator")
    encode = None
    if arguments.schema is not None:
        from penstock.cli.registry_api import make_registry

        encode = make_registry(arguments).encoder(arguments.schema)
    return InputFormat(
        arguments.format,
        key_separator=arguments.key_separator,
        key=None if arguments.key is None else _raw(arguments.key),
        headers=tuple((name, _raw(value)) for name, value in arguments.header),
        encode=encode,
    )


def _send_all(producer: Producer, arguments: argparse.Namespace, form: InputFormat, progress: Progress) -> None:
    for pieces in _pieces(arguments):
        before = producer.bytes
        drafts = list(_drafts(pieces, form, arguments.partition))
        producer.send(drafts)
        progress.add(len(drafts), producer.bytes - before)


def _pieces(arguments: argparse.Namespace) -> Iterator[list[bytes]]:
    if arguments.messages:
        return iter([[_raw(message) for message in arguments.messages]])
    return read_pieces(STANDARD_INPUT, arguments.delimiter)


def _drafts(pieces: list[bytes], form: InputFormat, number: int | None) -> Iterator[MessageDraft]:
    for piece in pieces:
        draft = form.read(piece)
        yield draft if number is None else draft._replace(partition=number)


def _raw(argument: str) -> bytes:
    """The bytes that were typed, also where they are no UTF-8."""
    return argument.encode("utf-8", "surrogateescape")


def _report(producer: Producer, topic: str, output: Output) -> None:
    total = sum(producer.written.values())
    if output.as_json:
        partitions = {str(number): count for number, count in sorted(producer.written.items())}
        output.document({"topic": topic, "messages": total, "bytes": producer.bytes, "partitions": partitions})
    elif output.is_terminal:
        output.say(f"wrote {total} message{'' if total == 1 else 's'} to {topic}")
