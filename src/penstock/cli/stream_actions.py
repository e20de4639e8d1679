"""What `penstock stream` does, over gRPC."""

from __future__ import annotations

import argparse
import base64
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

from penstock.cli.client_options import INT32_MAX
from penstock.cli.connection import Connection
from penstock.cli.exit_codes import ExitCode
from penstock.cli.failure import CommandError, usage
from penstock.cli.message_input import read_pieces
from penstock.cli.output import Output, Progress
from penstock.client.stream_calls import StreamCalls
from penstock.core.errors import ConfigError

CHUNK_BYTES: Final = 1 << 20
STANDARD_INPUT: Final = 0
LINES_AT_ONCE: Final = 500
CONNECTED_S: Final = 2.0  # what has lasted so long was a connection
RETRY_S: Final = 0.2


def run_action(arguments: argparse.Namespace, output: Output) -> int:
    """Carry out one subcommand; what gRPC says went wrong is told to a person."""
    try:
        import grpc
    except ModuleNotFoundError as error:
        raise CommandError(f"{error.name} is not installed; run: pip install 'penstock[stream]'", ExitCode.USAGE) from error
    connection = Connection(arguments)
    address = connection.address("stream")
    try:
        with StreamCalls(address, connection.identity(), arguments.timeout, tls_name="--tls-ca") as calls:
            ACTIONS[arguments.action](calls, arguments, output)
    except ConfigError as error:
        raise usage(str(error)) from error
    except grpc.RpcError as error:
        unreachable = error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
        exit_code = ExitCode.NO_CONNECTION if unreachable else ExitCode.FAILED
        raise CommandError(f"{address}: {error.details()}", exit_code) from error
    except KeyboardInterrupt:
        # Following has no other end; all else was cut short.
        if arguments.action != "follow":
            raise
    return ExitCode.OK


def _publish(calls: StreamCalls, arguments: argparse.Namespace, output: Output) -> None:
    headers = dict(arguments.header)
    if arguments.files:
        for path in arguments.files:
            _publish_file(calls, arguments.subject, path, headers, output)
        return
    for lines in read_pieces(STANDARD_INPUT, b"\n"):
        for begin in range(0, len(lines), LINES_AT_ONCE):
            _publish_lines(calls, arguments.subject, lines[begin : begin + LINES_AT_ONCE], headers, output)
            sys.stdout.flush()  # a program that writes one line at a time waits for its sequence number


def _publish_lines(calls: StreamCalls, subject: str, lines: list[bytes], headers: dict[str, str], output: Output) -> None:
    messages = [calls.protos.PublishRequest(subject=subject, data=line, headers=headers) for line in lines]
    answer = calls.ask("IngressService/PublishBatch", "PublishBatchResponse", messages=messages)
    for result in answer.results:
        if result.status_code:
            raise CommandError(result.error_message)
        _tell_published(result, output)


def _publish_file(calls: StreamCalls, subject: str, path: Path, headers: dict[str, str], output: Output) -> None:
    progress = Progress(shown=True)
    size = path.stat().st_size

    def requests() -> Iterator[Any]:
        header = calls.protos.UploadHeader(subject=subject, headers={"file-name": path.name, **headers}, size=size)
        yield calls.protos.UploadRequest(header=header)
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                yield calls.protos.UploadRequest(chunk=chunk)
                progress.add(0, len(chunk))

    published = calls.upload(requests())
    progress.add(1, 0)
    progress.end()
    _tell_published(published, output)


def _tell_published(published: Any, output: Output) -> None:
    if output.as_json:
        output.document({"sequence": published.sequence, "object_name": published.object_name})
    else:
        output.line(str(published.sequence))


def _fetch(calls: StreamCalls, arguments: argparse.Namespace, output: Output) -> None:
    if arguments.durable is None:
        if arguments.ack:
            raise CommandError("--ack needs --durable, the consumer that acknowledges", ExitCode.USAGE)
        messages = calls.stream(
            "EgressService/Read",
            "Message",
            timeout_s=arguments.timeout,
            subject=arguments.subject,
            from_sequence=arguments.begin,
            limit=arguments.limit,
        )
    else:
        names = {"subject": arguments.subject, "durable_name": arguments.durable}
        messages = calls.stream(
            "EgressService/Fetch", "Message", timeout_s=arguments.timeout, batch_size=min(arguments.limit, INT32_MAX), **names
        )
    for message in messages:
        _show(message, output)
        if arguments.ack:
            sys.stdout.flush()  # what is acknowledged has been seen
            calls.ask(
                "EgressService/AckMessage",
                "AckResponse",
                subject=arguments.subject,
                durable_name=arguments.durable,
                sequence=message.sequence,
            )


def _follow(calls: StreamCalls, arguments: argparse.Namespace, output: Output) -> None:
    """A node that is gone may come back within the timeout; what was shown is not shown again."""
    import grpc

    begin = arguments.begin
    if begin is None:
        begin = calls.ask("EgressService/GetLastSequence", "GetLastSequenceResponse", subject=arguments.subject).last_sequence + 1
    left = arguments.limit
    tries_end: float | None = None
    while True:
        began = time.monotonic()
        query = {"subject": arguments.subject, "from_sequence": begin, "limit": max(left, 0), "follow": True}
        try:
            for message in calls.stream("EgressService/Read", "Message", **query):
                _show(message, output)
                sys.stdout.flush()
                begin, left = message.sequence + 1, left - 1
                if left == 0:
                    return
            return
        except grpc.RpcError as error:
            now = time.monotonic()
            if tries_end is None or now - began > CONNECTED_S:  # it was there until now
                tries_end = now + arguments.timeout
            if error.code() is not grpc.StatusCode.UNAVAILABLE or now >= tries_end:
                raise
            time.sleep(RETRY_S)


def _show(message: Any, output: Output) -> None:
    size = message.headers.get("penstock.size")
    if output.as_json:
        shown = {"sequence": message.sequence, "subject": message.subject, "headers": dict(message.headers)}
        shown["timestamp"] = message.timestamp.ToJsonString()
        try:
            shown["data"] = message.data.decode()
        except UnicodeDecodeError:
            shown["data_base64"] = base64.b64encode(message.data).decode()
        output.document(shown)
        return
    is_here = message.data or size is None
    text = message.data.decode(errors="backslashreplace") if is_here else f"<{size} bytes; penstock stream download>"
    output.line(f"{message.sequence}\t{message.subject}\t{text}")


def _download(calls: StreamCalls, arguments: argparse.Namespace, output: Output) -> None:
    progress = Progress(shown=True)
    done = 0
    with _replacing(arguments.file) as file:
        for answer in calls.stream("EgressService/Download", "DownloadResponse", sequence=arguments.sequence):
            if answer.WhichOneof("part") == "chunk":
                file.write(answer.chunk)
                done += len(answer.chunk)
                progress.add(0, len(answer.chunk))
    progress.end()
    output.say(f"{done} bytes")
    if output.as_json:
        output.document({"bytes": done})


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes its place when all is in it: a download that fails leaves what was there."""
    if path.exists() and not path.is_file():  # a pipe or a device, such as /dev/stdout
        with path.open("wb") as file:
            yield file
        return
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _consumers(calls: StreamCalls, arguments: argparse.Namespace, output: Output) -> None:
    subject = arguments.subject
    last = calls.ask("EgressService/GetLastSequence", "GetLastSequenceResponse", subject=subject).last_sequence
    consumers = calls.ask("EgressService/GetConsumers", "GetConsumersResponse", subject=subject).consumers
    if output.as_json:
        shown = [
            {"durable_name": consumer.durable_name, "subject": consumer.subject, "last_sequence": consumer.last_sequence}
            for consumer in consumers
        ]
        output.document({"last_sequence": last, "consumers": shown})
    else:
        rows = [(consumer.durable_name, consumer.subject, consumer.last_sequence, last) for consumer in consumers]
        output.rows(("consumer", "subject", "last sequence", "of"), rows)


def _ack(calls: StreamCalls, arguments: argparse.Namespace, output: Output) -> None:
    calls.ask(
        "EgressService/AckMessage",
        "AckResponse",
        subject=arguments.subject,
        durable_name=arguments.durable,
        sequence=arguments.sequence,
        rewind=arguments.rewind,
    )
    output.say(f"{arguments.durable} has acknowledged {arguments.subject} at least up to {arguments.sequence}")


def _configure(calls: StreamCalls, arguments: argparse.Namespace, output: Output) -> None:
    calls.ask(
        "EgressService/ConfigureConsumer",
        "ConfigureConsumerResponse",
        subject=arguments.subject,
        durable_name=arguments.durable,
        ack_wait_s=arguments.ack_wait,
        tries_max=arguments.tries,
        dead_letter_subject=arguments.dead_letter,
    )
    output.say(f"{arguments.durable} of {arguments.subject} is configured")


ACTIONS: Final[dict[str, Callable[[StreamCalls, argparse.Namespace, Output], None]]] = {
    "publish": _publish,
    "fetch": _fetch,
    "follow": _follow,
    "download": _download,
    "consumers": _consumers,
    "ack": _ack,
    "configure": _configure,
}
