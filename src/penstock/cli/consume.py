"""`penstock consume`: messages of a topic to standard output."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, BinaryIO

from penstock.cli.client_options import add_registry_option, count, http_options, make_client, partition, separator
from penstock.cli.command_parser import CommandParser
from penstock.cli.exit_codes import ExitCode
from penstock.cli.failure import CommandError, usage
from penstock.cli.message_output import FIELDS, FORMATS, message_format, renderer
from penstock.cli.output import Progress
from penstock.cli.positions import (
    EARLIEST,
    FORMS,
    LATEST,
    Position,
    chosen_partitions,
    find_offsets,
    list_offsets,
    position,
)
from penstock.core.errors import PenstockError

if TYPE_CHECKING:
    from penstock.cli.kafka_client import CommandClient
    from penstock.client.record_batch import Record
    from penstock.kafka.protocol.metadata import MetadataResponseTopic

    Found = list[tuple[int, Record]]


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    command = CommandParser(
        prog="penstock consume",
        description="Consume messages of a topic: by default from the earliest offset up to the end of the log at the start "
        "of the command. Messages of a partition are printed in order. Only committed messages are read "
        "(read_committed). With --group it joins a consumer group and starts at its committed offsets.",
        parents=[http_options()],
    )
    command.add_argument("topic", metavar="TOPIC")
    begin = command.add_mutually_exclusive_group()
    begin.add_argument(
        "--from", "--offset", dest="begin", type=position, metavar="POSITION", help=f"where to start: {FORMS} (default: earliest)"
    )
    begin.add_argument("--last", type=count, metavar="N", help="start N messages before the end of each partition")
    command.add_argument(
        "--to", dest="end", type=position, metavar="POSITION", help="stop before this position; same forms as --from"
    )
    command.add_argument("-F", "--follow", action="store_true", help="keep waiting for new messages, until Ctrl-C or --to")
    command.add_argument(
        "-g",
        "--group",
        metavar="NAME",
        help="join this consumer group: start at its committed offsets (at --from where it has none), share partitions "
        "with the other members, and commit the offsets of printed messages",
    )
    command.add_argument("-n", "--count", type=count, metavar="N", help="stop after N messages")
    command.add_argument(
        "-p",
        "--partition",
        type=partition,
        action="append",
        metavar="N",
        help="only this partition; may be repeated (default: all)",
    )
    _add_formats(command)
    command.add_argument(
        "--decode",
        action="store_true",
        help="print keys and values that name a schema as JSON, by that schema (Avro, JSON Schema, Protobuf)",
    )
    add_registry_option(command)
    return command


def _add_formats(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "-f",
        "--format",
        type=message_format,
        metavar="{" + ",".join(FORMATS) + "}",
        help="one of these, or a format as kcat's: %%t topic, %%p partition, %%o offset, %%k key, %%s value, %%h "
        "headers, %%T timestamp in ms, %%K and %%S sizes of key and value in bytes (-1: none), %%R the latter as 4 binary bytes; "
        "\\n, \\t, \\r, \\0 and \\xHH for special characters (default: text, or that of -o)",
    )
    command.add_argument(
        "--show",
        type=_fields,
        default=["value"],
        metavar="FIELDS",
        help=f"fields to print, in order, separated by commas: {', '.join(FIELDS)} (default: value); json prints all fields",
    )
    command.add_argument(
        "-s", "--separator", type=separator, default=b"\t", metavar="CHARS", help="separator between fields (default: \\t)"
    )
    command.add_argument(
        "-d", "--delimiter", type=separator, default=b"\n", metavar="CHARS", help="separator after each message (default: \\n)"
    )


def run(argv: list[str]) -> int:
    """Write messages until the end, the count or Ctrl-C."""
    arguments = parser().parse_args(argv)
    with make_client(arguments) as client:
        try:
            return _consume(client, arguments)
        except KeyboardInterrupt:
            # Following has no other end; all else was cut short.
            return ExitCode.OK if arguments.follow else ExitCode.INTERRUPTED


def _consume(client: CommandClient, arguments: argparse.Namespace) -> int:
    from penstock.cli.consumer import Consumer

    topic = client.topic(arguments.topic)
    if arguments.group is not None:
        return _consume_in_group(client, topic, arguments)
    starts, ends = _range(client, topic, arguments)
    _write(Consumer(client, topic, starts, ends).read(), arguments, lambda _, is_all: None)
    return ExitCode.OK


def _consume_in_group(client: CommandClient, topic: MetadataResponseTopic, arguments: argparse.Namespace) -> int:
    from penstock.cli.group_reader import GroupReader

    if arguments.partition or arguments.last is not None or arguments.end is not None:
        raise usage("--group reads from committed offsets; it cannot be combined with --partition, --last or --to")
    reader = GroupReader(client, topic, arguments.group, begin=arguments.begin, goes_on=arguments.follow)
    try:
        _write(reader.read(), arguments, reader.printed)
    except (CommandError, PenstockError):  # the node cannot be told any more
        raise
    except BaseException:
        client.close()  # an reply may still be in flight
        reader.leave()
        raise
    reader.leave()
    return ExitCode.OK


def _write(rounds: Iterator[Found], arguments: argparse.Namespace, written_out: Callable[[Found, bool], None]) -> None:
    """Print messages, and say which are printed and whether those are all of their round."""
    form = arguments.format or arguments.output
    render = renderer(form, arguments.topic, fields=arguments.show, separator=arguments.separator, delimiter=arguments.delimiter)
    decode = _decoder(arguments)
    out: BinaryIO = sys.stdout.buffer
    if isinstance(out, io.RawIOBase):  # PYTHONUNBUFFERED, as in many containers: a call of the system for each message
        out = io.BufferedWriter(io.FileIO(out.fileno(), "wb", closefd=False))
    progress = Progress(shown=not sys.stdout.isatty())
    left = arguments.count
    try:
        for records in rounds:
            shown = records if left is None else records[:left]
            written = [render(number, decode(record)) for number, record in shown]
            out.writelines(written)
            out.flush()
            written_out(shown, len(shown) == len(records))
            progress.add(len(written), sum(map(len, written)))
            if left is not None:
                left -= len(shown)
                if left == 0:
                    break
    finally:
        progress.end()


def _decoder(arguments: argparse.Namespace) -> Callable[[Record], Record]:
    """What makes JSON of keys and values that name a schema, if that is asked for; others stay as they are."""
    if not arguments.decode:
        return lambda record: record
    from penstock.cli.registry_api import make_registry

    registry = make_registry(arguments)
    return lambda record: record._replace(key=registry.as_json(record.key), value=registry.as_json(record.value))


def _range(
    client: CommandClient, topic: MetadataResponseTopic, arguments: argparse.Namespace
) -> tuple[dict[int, int], dict[int, int]]:
    """Where to begin in each partition and, unless it is to go on for ever, where to stop."""
    numbers = chosen_partitions(topic, arguments.partition)
    earliest = list_offsets(client, topic, dict.fromkeys(numbers, EARLIEST))
    latest = list_offsets(client, topic, dict.fromkeys(numbers, LATEST))
    begin = arguments.begin or Position(timestamp_ms=EARLIEST)
    if arguments.last is not None:
        starts = {number: latest[number] - arguments.last for number in numbers}
    else:
        starts = find_offsets(client, topic, dict.fromkeys(numbers, begin))
    starts = {number: min(max(start, earliest[number]), latest[number]) for number, start in starts.items()}
    if arguments.end is None:
        return starts, {} if arguments.follow else latest
    if arguments.follow and arguments.end.offset is None:
        raise usage("with --follow, --to must be an offset")
    ends = find_offsets(client, topic, dict.fromkeys(numbers, arguments.end))
    if not arguments.follow:
        ends = {number: min(end, latest[number]) for number, end in ends.items()}
    return starts, ends


def _fields(text: str) -> list[str]:
    names = text.split(",")
    if not set(names) <= set(FIELDS):
        raise ValueError(text)
    return names


_fields.__name__ = "list of fields"
