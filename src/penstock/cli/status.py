"""`penstock status`: how a node is, on one screen."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, Final

from penstock.cli.client_options import http_options, seconds
from penstock.cli.command_parser import CommandParser
from penstock.cli.exit_codes import ExitCode
from penstock.cli.failure import CommandError
from penstock.cli.http_api import HttpApi, make_api
from penstock.cli.output import RED, YELLOW, Output
from penstock.cli.sizes import counted, shown_bytes, shown_duration

WAIT_STEP_S: Final = 0.1
"The pause between two attempts of a command that waits for a node."
_COLOURS: Final = {"critical": RED, "warning": YELLOW}


def parser() -> argparse.ArgumentParser:
    """Its options."""
    command = CommandParser(
        prog="penstock status",
        description="Show the cluster, its listeners, rates, storage and alerts.",
        parents=[http_options()],
    )
    command.add_argument("--check", action="store_true", help="exit with 1 if there is a critical alert")
    command.add_argument(
        "--wait",
        type=seconds,
        metavar="SECONDS",
        default=None,
        help="wait this long for a node that does not answer yet (default: 0)",
    )
    return command


def run(argv: list[str]) -> int:
    """Show it."""
    arguments = parser().parse_args(argv)
    output = Output.of(arguments)
    status = wait_for_status(lambda: make_api(arguments), arguments.wait or 0)
    if output.as_json:
        output.document(status)
    else:
        for line in lines(status):
            level = line.partition(" ")[0]
            output.line(output.coloured(line, _COLOURS[level]) if level in _COLOURS else line)
    is_critical = any(alert["level"] == "critical" for alert in status["overview"]["alerts"])
    return ExitCode.FAILED if arguments.check and is_critical else ExitCode.OK


def wait_for_status(api: Callable[[], HttpApi], wait_s: float) -> dict[str, Any]:
    """All that is shown, as soon as the node answers. Its HTTP listener opens last, so all others are open by then."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return fetch_status(api())
        except CommandError as error:
            if error.exit_code is not ExitCode.NO_CONNECTION or time.monotonic() >= deadline:
                raise
        time.sleep(WAIT_STEP_S)


def fetch_status(api: HttpApi) -> dict[str, Any]:
    """All that is shown."""
    overview = api.get("/overview")
    # Storage is null for who may not describe the cluster; the groups would be refused then.
    groups = [] if overview["storage"] is None else api.get("/storage")["groups"]
    return {"cluster": api.get("/cluster"), "overview": overview, "groups": groups}


def lines(status: dict[str, Any]) -> list[str]:
    """What is written, a line each."""
    cluster, overview = status["cluster"], status["overview"]
    up_s = (cluster["now_ms"] - cluster["started_ms"]) / 1000
    secured = [name for name, is_on in cluster["security"].items() if is_on]
    produce, fetch, lag = overview["produce"], overview["fetch"], overview["lag_max"]
    node = f"node {cluster['node_id']}, Penstock {cluster['version']}, up {shown_duration(up_s)}"
    partitions = counted(overview["partitions"], "partition")
    shown = [
        f"cluster    {cluster['name']} ({cluster['id']}), {node}",
        f"listeners  {', '.join(f'{name} {where}' for name, where in cluster['listeners'].items())}",
        f"security   {', '.join(secured) or 'none'}; durability {cluster['durability']}",
        f"topics     {overview['topics']} with {partitions}; {counted(overview['consumers'], 'consumer')}",
        f"produce    {produce['messages_per_s']:.1f} messages/s, {shown_bytes(produce['bytes_per_s'])}/s",
        f"fetch      {fetch['messages_per_s']:.1f} messages/s, {shown_bytes(fetch['bytes_per_s'])}/s",
        "lag        " + ("none" if lag is None else f"{lag['messages']} messages: {lag['consumer']} in {lag['topic']}"),
    ]
    if cluster["nodes"]:
        shown.insert(2, f"nodes      {', '.join(_shown_node(node) for node in cluster['nodes'])}")
    for group in status["groups"]:
        damaged = sum(vdisk["damaged"] for vdisk in group["vdisks"])
        up = sum(1 for vdisk in group["vdisks"] if vdisk["state"] == "serving")
        shown.append(
            f"storage    group {group['name']}, {group['erasure']}: {group['state']}, {up} of {len(group['vdisks'])} disks; "
            f"{counted(damaged, 'damaged part') + ', ' if damaged else ''}"
            f"{shown_bytes(group['used'])} used, {shown_bytes(group['free'])} of {shown_bytes(group['total'])} free"
        )
    shown += (f"{alert['level']:<10} {alert['message']}; {alert['what_to_do']}" for alert in overview["alerts"])
    return shown if overview["alerts"] else [*shown, "alerts     none"]


def _shown_node(node: dict[str, Any]) -> str:
    where = node["kafka"] or "runs" if node["is_running"] else "is away"
    conditions = {"leads": node["is_leader"], "drains": node["is_draining"], "is not reached": node["state"] == "unreached"}
    marks = [mark for mark, is_so in conditions.items() if is_so]
    return " ".join([f"{node['node_id']} ({node['name']})", where, *marks, f"with {counted(node['tablets'], 'tablet')}"])
