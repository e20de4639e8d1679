"""`penstock up`: one node in this process, or several workers under a supervisor, until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock import __version__
from penstock.cli.command_parser import CommandParser
from penstock.cli.exit_codes import ExitCode
from penstock.cli.failure import CommandError
from penstock.core.errors import PenstockError
from penstock.core.memory import collect_later, collect_seldom, keep_freed_memory
from penstock.server import SETTINGS, BadSettingError, NodeConfig, load_config
from penstock.server.errors import DirectoryInUseError, DirectoryMismatchError, DirectoryUnusableError, ListenError

if TYPE_CHECKING:
    from aiohttp import web

    from penstock.server.cluster.node import ClusterNode
    from penstock.server.node import Node
    from penstock.server.supervisor.supervisor import Supervisor
    from penstock.server.supervisor.worker import WorkerNode

    RunningNode = Node | ClusterNode | WorkerNode | Supervisor

log = logging.getLogger(__name__)

_EXIT_CODES: Final[dict[type[PenstockError], ExitCode]] = {
    BadSettingError: ExitCode.USAGE,
    DirectoryInUseError: ExitCode.DIRECTORY_IN_USE,
    DirectoryUnusableError: ExitCode.DIRECTORY_UNUSABLE,
    DirectoryMismatchError: ExitCode.DIRECTORY_MISMATCH,
    ListenError: ExitCode.CANNOT_LISTEN,
}


def parser() -> argparse.ArgumentParser:
    """An option for every setting of a node."""
    command = CommandParser(
        prog="penstock up",
        allow_abbrev=False,  # --admin-password is not short for --admin-password-file
        description="Start a node. It needs no configuration: options override PENSTOCK_… variables, which override "
        "penstock.toml, which overrides the defaults. On SIGTERM or Ctrl-C it completes the requests in flight "
        "and exits with 0.",
    )
    command.add_argument(
        "--config", type=Path, metavar="FILE", help="the configuration file (default: ./penstock.toml, if it exists)"
    )
    command.add_argument("-o", "--output", choices=("text", "json"), default="text", help="format of the ready line")
    for setting in SETTINGS.values():
        if setting.is_secret:
            continue
        metavar = "{" + ",".join(setting.kind.choices) + "}" if setting.kind.choices else setting.metavar
        command.add_argument(
            setting.option,
            dest=setting.key,
            action="append" if setting.is_list else "store",
            metavar=metavar,
            default=argparse.SUPPRESS,
            help=f"{setting.doc} (default: {setting.default})".replace("%", "%%"),
        )
    return command


def run(argv: list[str]) -> int:
    """Serve until told to stop; the exit code says how it ended."""
    arguments = vars(parser().parse_args(argv))
    config_file, output = arguments.pop("config"), arguments.pop("output")
    with node_errors():
        config = load_config(arguments, os.environ, config_file)
        run_node(config, partial(_start, config), as_json=output == "json")
    return ExitCode.OK


@contextmanager
def node_errors() -> Iterator[None]:
    """Raises what keeps a node from running as the error of a command, with the exit code of its kind."""
    try:
        yield
    except PenstockError as error:
        code = next((code for kind, code in _EXIT_CODES.items() if isinstance(error, kind)), ExitCode.FAILED)
        raise CommandError(str(error), getattr(error, "exit_code", code)) from error
    except Exception as error:
        log.exception("the node failed")
        raise CommandError(f"the node failed: {error}; the log above says where", ExitCode.FAILED) from error


def run_node(
    config: NodeConfig, start: Callable[[], Coroutine[Any, Any, RunningNode]], *, as_json: bool, worker: int | None = None
) -> None:
    """Run the node that `start` starts until a signal comes. The lines of a worker are marked, and it stops when its standard
    input ends."""
    from penstock.server.log_lines import log_to_stderr
    from penstock.server.open_files import raise_open_files

    log_to_stderr(config.log_level, config.log_format, worker)
    raise_open_files()
    _tell_of_plain_kernels()
    keep_freed_memory()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(start, as_json=as_json, follows_stdin=worker is not None))


def _tell_of_plain_kernels() -> None:
    from penstock.kernels import plain_kernels

    if plain := plain_kernels():
        log.warning("%d kernels run as plain Python, many times slower: %s; see `penstock doctor`", len(plain), ", ".join(plain))


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.Loop


async def _serve(start: Callable[[], Coroutine[Any, Any, RunningNode]], *, as_json: bool, follows_stdin: bool) -> None:
    stopping = _stop_on_signals()
    if follows_stdin:
        _stop_with_stdin(stopping)
    collect_later()
    starting = asyncio.create_task(start())
    stopped = asyncio.create_task(stopping.wait())
    await asyncio.wait((starting, stopped), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        with suppress(asyncio.CancelledError):
            await starting
        return
    node = await starting
    try:
        collect_seldom()
        _say_ready(node, as_json=as_json)
        failed = asyncio.create_task(node.wait_failure())
        await asyncio.wait((stopped, failed), return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            failed.result()
        failed.cancel()
        log.info("stopping; a second signal stops at once")
    finally:
        await node.stop()
    log.info("stopped")


async def _start(config: NodeConfig) -> RunningNode:
    # Imported when signals are already heeded: it takes a while.
    if config.workers > 1:
        from penstock.server.supervisor.supervisor import Supervisor

        return await Supervisor.start(config, (sys.executable, "-m", "penstock.cli.worker"))
    if config.etcd is not None:
        from penstock.server.cluster.node import ClusterNode

        return await ClusterNode.start(config, mount_console)
    from penstock.server.node import Node

    return await Node.start(config, mount_console)


def mount_console(app: web.Application) -> None:
    """Mount the console beside the admin API."""
    # Only a node that listens for it needs it.
    from penstock import console

    console.mount(app)


def _stop_on_signals() -> asyncio.Event:
    """An event set by the first SIGTERM or SIGINT; the second ends the process there and then."""
    stopping = asyncio.Event()

    def on_signal(number: int) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    return stopping


def _stop_with_stdin(stopping: asyncio.Event) -> None:
    """Set the event when standard input ends: the supervisor has ended. If that was stopping already, it was to be at once."""
    loop = asyncio.get_running_loop()
    number = sys.stdin.fileno()

    def on_input() -> None:
        if not os.read(number, 4096):
            loop.remove_reader(number)
            if stopping.is_set():
                os._exit(ExitCode.FAILED)
            log.warning("the supervisor has ended; this worker stops")
            stopping.set()

    loop.add_reader(number, on_input)


def _say_ready(node: RunningNode, *, as_json: bool) -> None:
    layout = node.layout
    workers: list[dict[str, Any]] = getattr(node, "described_workers", list)()
    if as_json:
        fields = {
            "event": "ready",
            "version": __version__,
            "pid": os.getpid(),
            "cluster_id": layout.cluster_id,
            "node_id": layout.node_id,
            "data_dir": str(node.data_dir),
            "erasure": layout.erasure.value,
            "durability": node.config.durability,
            "listeners": {name: listener._asdict() for name, listener in node.listeners.items()},
        }
        line = json.dumps(fields | {"workers": workers} if workers else fields)
    else:
        where = ", ".join(f"{name} {listener}" for name, listener in node.listeners.items()) or "no listeners"
        shown_workers = f"; {len(workers)} workers" if workers else ""
        line = f"penstock is ready: {where}; data in {node.data_dir}{shown_workers}"
    with suppress(BrokenPipeError):
        print(line, flush=True)
    log.info("node %d of cluster %s is ready, durability %s", layout.node_id, layout.cluster_id, node.config.durability)
