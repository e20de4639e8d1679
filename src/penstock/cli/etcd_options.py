"""The options of commands that speak to the etcd of a cluster: the same settings as those of a node, and the connection."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from penstock.cli.client_options import output_options
from penstock.cli.command_parser import CommandParser
from penstock.cli.exit_codes import ExitCode
from penstock.cli.failure import CommandError, usage
from penstock.cli.output import WAIT_SHOWN_S, Output, StatusLine
from penstock.server.cluster_settings import ETCD_SETTINGS
from penstock.server.config import NodeConfig, load_config
from penstock.server.errors import BadSettingError

if TYPE_CHECKING:
    from penstock.coordination import Coordination

    Action = Callable[[Coordination, argparse.Namespace, Output], Awaitable[None]]

ASK_S: Final = 0.2


def etcd_options() -> CommandParser:
    """A parent parser with where etcd is and how to sign in to it."""
    parent = CommandParser(add_help=False)
    group = parent.add_argument_group("etcd and output")
    group.add_argument(
        "--name", "--cluster-name", dest="name", metavar="NAME", required=True, help="the name of the cluster in etcd"
    )
    for setting in ETCD_SETTINGS:
        if not setting.is_secret:
            group.add_argument(
                setting.option,
                dest=setting.key,
                metavar=setting.metavar,
                default=argparse.SUPPRESS,
                help=f"{setting.doc.partition('. ')[0]} (default: {setting.variable}, or {setting.default})",
            )
    output_options(group)
    return parent


def cluster_config(arguments: argparse.Namespace) -> NodeConfig:
    """The settings that the arguments and the environment describe."""
    given = vars(arguments)
    options = {setting.key: given[setting.key] for setting in ETCD_SETTINGS if setting.key in given}
    try:
        config = load_config(options, os.environ)
    except BadSettingError as error:
        raise usage(str(error)) from error
    if config.etcd is None:
        raise usage("the address of etcd is missing: give --etcd http://HOST:2379, or set PENSTOCK_ETCD")
    return _named(config, arguments.name)


def _named(config: NodeConfig, name: str) -> NodeConfig:
    from dataclasses import replace

    return replace(config, cluster_name=name)


def run_connected(action: Action, arguments: argparse.Namespace) -> int:
    """Carry out an action on the coordination of a cluster."""
    from penstock.coordination import CoordinationUnavailableError

    output = Output.of(arguments)
    try:
        asyncio.run(_connected(action, cluster_config(arguments), arguments, output))
    except CoordinationUnavailableError as error:
        raise CommandError(str(error), ExitCode.NO_CONNECTION) from error
    except BadSettingError as error:
        raise usage(str(error)) from error
    return ExitCode.OK


async def _connected(action: Action, config: NodeConfig, arguments: argparse.Namespace, output: Output) -> None:
    from penstock.server.cluster.connection import connect_coordination

    coordination = connect_coordination(config, random.Random())
    try:
        await action(coordination, arguments, output)
    finally:
        await coordination.close()


async def ask_leader(coordination: Coordination, kind: str, arguments: dict[str, str], timeout_s: float) -> str:
    """Have the leader do something; its answer. CommandError if it cannot, or has not in time."""
    from penstock.coordination import OperatorRequest

    request_id = str(uuid.uuid4())
    await coordination.ask_leader(request_id, OperatorRequest(kind=kind, arguments=arguments))
    answer = "no leader has answered; `penstock cluster show` shows who runs"
    line, began = StatusLine(), time.monotonic()
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                request = await coordination.read_request(request_id)
                if request is not None and request.is_done:
                    if request.is_failed:
                        raise CommandError(request.answer)
                    return request.answer
                if request is not None and request.answer:
                    answer = request.answer
                if time.monotonic() - began >= WAIT_SHOWN_S:
                    line.show(f"{answer} ({time.monotonic() - began:.0f} s)")
                await asyncio.sleep(ASK_S)
    except TimeoutError:
        raise CommandError(f"not done within {timeout_s:g} s; the request was withdrawn: {answer}") from None
    finally:
        line.clear()
        await coordination.forget_request(request_id)


def show_answer(output: Output, answer: str) -> None:
    """Print what the leader answered."""
    if output.as_json:
        output.document({"answer": answer})
    output.say(answer)
