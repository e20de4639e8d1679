"""`penstock doctor`: looks at this machine as a node would find it, and says what is in the way and what to do."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from penstock.cli.client_options import client_options
from penstock.cli.command_parser import CommandParser
from penstock.cli.connection import Connection
from penstock.cli.doctor_finding import Finding, Status, fail
from penstock.cli.exit_codes import ExitCode
from penstock.cli.output import GREEN, RED, YELLOW, Output
from penstock.cli.sizes import counted
from penstock.server import BadSettingError, NodeConfig, load_config

_COLOURS = {Status.OK: GREEN, Status.WARN: YELLOW, Status.FAIL: RED}


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    command = CommandParser(
        prog="penstock doctor",
        description="Check Python, the package and its extras, Java, ports, the data directory, the clock, limits and the "
        "host name for a node with this configuration, and a running node if there is one. Each finding says how "
        "to fix it. Changes nothing. Exits with 1 if a check failed.",
        parents=[client_options()],
    )
    command.add_argument(
        "--config", type=Path, metavar="FILE", help="the configuration file (default: ./penstock.toml, if it exists)"
    )
    command.add_argument("--data-dir", metavar="DIR", default=argparse.SUPPRESS, help="the data directory to check")
    return command


def run(argv: list[str]) -> int:
    """Say what was found, line by line as it is."""
    arguments = parser().parse_args(argv)
    output = Output.of(arguments)
    findings = []
    for finding in _findings(arguments):
        findings.append(finding)
        if not output.as_json:
            output.line(_line(finding, output))
            sys.stdout.flush()
    counts = {status.value: sum(finding.status is status for finding in findings) for status in Status}
    if output.as_json:
        output.document({"findings": [finding._asdict() for finding in findings], **counts})
    else:
        output.line(f"\n{counts['ok']} ok, {counted(counts['warn'], 'warning')}, {counts['fail']} failed")
    return ExitCode.FAILED if counts["fail"] else ExitCode.OK


def _findings(arguments: argparse.Namespace) -> Iterator[Finding]:
    from penstock.cli.doctor_machine import check_machine
    from penstock.cli.doctor_network import check_node, check_ports, check_readiness
    from penstock.cli.doctor_software import check_software
    from penstock.cli.doctor_storage import check_storage

    options = {"data_dir": arguments.data_dir} if "data_dir" in arguments else {}
    try:
        config = load_config(options, os.environ, arguments.config)
    except BadSettingError as error:
        yield fail("configuration", str(error), "correct it; the other checks use the defaults")
        config = NodeConfig()
    yield from check_software(config)
    yield from check_storage(config)
    yield from check_ports(config)
    yield from check_machine(config)
    connection = Connection(arguments)
    yield check_node(connection.client(), is_asked_for=connection.is_named())
    readiness = check_readiness(config)
    if readiness is not None:
        yield readiness


def _line(finding: Finding, output: Output) -> str:
    status = output.coloured(f"{finding.status.value:<4}", _COLOURS[finding.status])
    return f"{status}  {finding.name:<17} {finding.found}" + (f" -> {finding.advice}" if finding.advice else "")
