"""`penstock top`: topics, consumer groups and disks in the terminal, refreshed until it is ended."""

from __future__ import annotations

import argparse
import time
from typing import Any, Final

from penstock.cli.client_options import http_options, seconds
from penstock.cli.command_parser import CommandParser
from penstock.cli.exit_codes import ExitCode
from penstock.cli.failure import CommandError
from penstock.cli.http_api import HttpApi, make_api
from penstock.cli.output import Output

SORTS: Final = ("rate", "size", "name")


def parser() -> argparse.ArgumentParser:
    """Its options."""
    command = CommandParser(
        prog="penstock top",
        description="Show topics, consumer groups and storage in the terminal, and refresh them until Ctrl-C. In a pipe, or with "
        "-o json, print them once.",
        parents=[http_options()],
    )
    command.add_argument("--interval", type=seconds, metavar="SECONDS", default=2.0, help="refresh interval (default: 2)")
    command.add_argument("--sort", choices=SORTS, default="rate", help="order of topics (default: rate)")
    command.add_argument("-n", "--rows", type=int, metavar="N", help="rows of each table (default: as many as fit)")
    return command


def run(argv: list[str]) -> int:
    """Show it."""
    arguments = parser().parse_args(argv)
    api = make_api(arguments)
    output = Output.of(arguments)
    if output.as_json:
        output.document(_read(api, arguments.sort, arguments.rows or 100))
        return ExitCode.OK
    from rich.console import Console
    from rich.live import Live

    from penstock.cli.top_view import view

    console = Console()
    if not output.is_terminal:
        console.print(view(_read(api, arguments.sort, arguments.rows or 20)))
        return ExitCode.OK
    # The alternate screen gives back what was in the terminal before.
    with Live(console=console, screen=True, auto_refresh=False) as live:
        try:
            while True:
                rows = arguments.rows or max((console.height - 12) // 2, 3)
                live.update(_shown(api, arguments.sort, rows), refresh=True)
                time.sleep(arguments.interval)
        except KeyboardInterrupt:
            return ExitCode.OK


def _shown(api: HttpApi, sort: str, rows: int) -> Any:
    """The view, or why there is none just now: a node that restarts is waited for."""
    from rich.text import Text

    from penstock.cli.top_view import view

    try:
        return view(_read(api, sort, rows))
    except CommandError as error:
        if error.exit_code is not ExitCode.NO_CONNECTION:
            raise
        return Text(f"{error}\n\ntrying again; Ctrl-C ends", style="red")


def _read(api: HttpApi, sort: str, rows: int) -> dict[str, Any]:
    order = {"rate": "sort=produce_bytes_per_s&order=desc", "size": "sort=bytes&order=desc", "name": "sort=name"}[sort]
    overview = api.get("/overview")
    return {
        "cluster": api.get("/cluster"),
        "overview": overview,
        "topics": api.get(f"/topics?limit={rows}&internal=false&{order}")["items"],
        "consumers": api.get(f"/consumers?limit={rows}&sort=lag_messages&order=desc")["items"],
        "storage": None if overview["storage"] is None else api.get("/storage")["groups"],
    }
