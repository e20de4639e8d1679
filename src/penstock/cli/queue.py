"""`penstock queue`: topics as queues, the consumers they wait for, and trimming."""

from __future__ import annotations

import argparse
from typing import Any
from urllib.parse import quote

from penstock.cli.client_options import count, http_options, partition
from penstock.cli.command_parser import CommandParser
from penstock.cli.exit_codes import ExitCode
from penstock.cli.http_api import HttpApi, make_api
from penstock.cli.output import Output
from penstock.cli.sizes import shown_duration
from penstock.client.units import duration_ms

PAGE = 500


def parser() -> argparse.ArgumentParser:
    """Its subcommands."""
    command = CommandParser(
        prog="penstock queue",
        description="Show topics as queues, register consumers, and configure trimming.",
    )
    actions = command.add_subparsers(dest="action", required=True, metavar="action")
    parent = http_options()

    def action(name: str, summary: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".", parents=[parent])

    listed = action("list", "list queues with rates, consumers and trimming")
    listed.add_argument("--search", metavar="TEXT", default="", help="only names that contain this text")
    described = action("describe", "show one queue: its consumers, trimming and alerts")
    registered = action("register", "register a consumer; messages that a vital consumer has not read are not trimmed")
    registered.add_argument("--vital", action="store_true", help="do not trim messages that this consumer has not read")
    registered.add_argument(
        "--partition", type=partition, action="append", metavar="N", help="only this partition; may be repeated"
    )
    unregistered = action("unregister", "remove a registration")
    trimmed = action("trim", "turn automatic trimming of what all vital consumers have read on or off")
    trimmed.add_argument("--off", action="store_true", help="turn automatic trimming off")
    trimmed.add_argument("--keep-rows", type=count, metavar="N", default=None, help="keep at least the last N rows")
    trimmed.add_argument(
        "--keep-for", type=duration_ms, metavar="TIME", default=None, help="keep rows younger than this, such as 12h"
    )
    for subcommand in (described, registered, unregistered, trimmed):
        subcommand.add_argument("queue", help="the topic, or the path of a YT queue")
    for subcommand in (registered, unregistered):
        subcommand.add_argument(
            "consumer", help="a consumer group, stream:NAME for a durable stream consumer, or the path of a YT consumer"
        )
    return command


def run(argv: list[str]) -> int:
    """Carry out one subcommand."""
    arguments = parser().parse_args(argv)
    api = make_api(arguments)
    output = Output.of(arguments)
    {"list": _list, "describe": _describe, "register": _register, "unregister": _unregister, "trim": _trim}[arguments.action](
        api, arguments, output
    )
    return ExitCode.OK


def _list(api: HttpApi, arguments: argparse.Namespace, output: Output) -> None:
    queues: list[dict[str, Any]] = []
    while True:
        page = api.get(f"/queues?limit={PAGE}&offset={len(queues)}&search={quote(arguments.search, safe='')}")
        queues += page["items"]
        if not page["items"] or len(queues) >= page["total"]:
            break
    if output.as_json:
        output.document(queues)
        return
    columns = ("queue", "partitions", "rows/s, 1 min", "1 h", "1 d", "consumers", "vital", "trimming", "alerts")
    output.rows(
        columns,
        [
            (
                queue["name"],
                queue["partitions"],
                *(f"{queue['write_row_count_rate'][span]:.1f}" for span in ("1m", "1h", "1d")),
                queue["registrations"],
                queue["vital"],
                "on" if queue["trim"]["enable"] else "off",
                queue["alerts"],
            )
            for queue in queues
        ],
    )


def _describe(api: HttpApi, arguments: argparse.Namespace, output: Output) -> None:
    queue = api.get(_path(arguments.queue))
    if output.as_json:
        output.document(queue)
        return
    output.line(f"queue      {queue['path']}, topic {queue['topic']}, {queue['partitions']} partitions, {queue['mount_state']}")
    output.line(f"trimming   {_shown_trimming(queue['trim'])}")
    for registration in queue["registrations"]:
        where = [f"{at['next_row_index']} of partition {number}" for number, at in enumerate(registration["partitions"] or [])]
        vital = "vital" if registration["vital"] else "not vital"
        output.line(f"consumer   {registration['consumer']}, {vital}" + (f"; next is row {', '.join(where)}" if where else ""))
    for alert in queue["alerts"]:
        output.line(f"alert      {alert['message']}")


def _register(api: HttpApi, arguments: argparse.Namespace, output: Output) -> None:
    body = {"vital": arguments.vital, "partitions": arguments.partition}
    done = api.call("PUT", _registration(arguments), body)
    _tell(
        output,
        done,
        f"registered {arguments.consumer} at {arguments.queue}"
        + (
            ": messages that it has not read are not trimmed"
            if arguments.vital
            else ", not as vital: trimming does not wait for it"
        ),
    )


def _unregister(api: HttpApi, arguments: argparse.Namespace, output: Output) -> None:
    _tell(output, api.call("DELETE", _registration(arguments)), f"{arguments.queue} no longer waits for {arguments.consumer}")


def _trim(api: HttpApi, arguments: argparse.Namespace, output: Output) -> None:
    body = {
        "enable": not arguments.off,
        "retained_rows": arguments.keep_rows,
        "retained_lifetime_ms": arguments.keep_for,
    }
    done = api.call("PUT", f"{_path(arguments.queue)}/trimming", body)
    _tell(output, done, f"trimming of {arguments.queue}: {_shown_trimming(done)}")


def _tell(output: Output, answer: dict[str, Any], sentence: str) -> None:
    if output.as_json:
        output.document(answer)
    output.say(sentence)


def _shown_trimming(trim: dict[str, Any]) -> str:
    if not trim["enable"]:
        return "off"
    kept = []
    if trim["retained_rows"] is not None:
        kept.append(f"the last {trim['retained_rows']} rows")
    if trim["retained_lifetime_ms"] is not None:
        kept.append(f"rows younger than {shown_duration(trim['retained_lifetime_ms'] / 1000)}")
    return "on: rows that all vital consumers have read are deleted" + (f", except {' and '.join(kept)}" if kept else "")


def _path(queue: str) -> str:
    return f"/queues/{quote(queue, safe='')}"


def _registration(arguments: argparse.Namespace) -> str:
    return f"{_path(arguments.queue)}/registrations/{quote(arguments.consumer, safe='')}"
