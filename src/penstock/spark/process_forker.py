"""A process with all imports of Spark's Python workers, from which the workers of this machine are forked.

Spark starts one to plan every stream and one for each kind of question about a source, each of which would import for a third of
a second. The launcher that Spark starts them through runs `handover` instead, which asks here:

    request    JSON {"arguments", "environment", "directory"} up to the end, with the three standard files beside its first byte
    answer     the id of the process in decimal digits; nothing if it has to be started as usual
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from penstock.spark.handover import FORKER
from penstock.spark.worker_daemon import ENVIRONMENT, count_threads, run_daemon

REQUEST_SECONDS_MAX: Final = 5.0
POLL_MS: Final = 10_000

_MODULES: Final = (
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "penstock.spark.source",
)
# What Spark gives to its processes, read by them when they need it; all else may have been read as this one started.
_LATE: Final = ("SPARK_", "PYSPARK_", "_PYSPARK_", "PYTHON_")
_SHELL: Final = ("_", "PWD", "OLDPWD", "SHLVL")


def main() -> None:
    """Import, then fork the requested processes until the parent process ends."""
    given, parent = dict(os.environ), os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the processes that Spark starts
    for name, value in {**ENVIRONMENT, "OMP_NUM_THREADS": "1"}.items():
        os.environ.setdefault(name, value)
    for module in _MODULES:
        import_module(module)
    if count_threads() != 1:
        return  # a process with threads must not be forked
    gc.collect()
    gc.freeze()
    address = Path(given[FORKER])
    address.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(address))
        listener.listen()
        try:
            _serve(listener, given, parent)
        finally:
            address.unlink(missing_ok=True)


def _serve(listener: socket.socket, given: Mapping[str, str], parent: int) -> None:
    poll = select.poll()
    poll.register(sys.stdin, select.POLLIN)
    poll.register(listener, select.POLLIN)
    while os.getppid() == parent:
        ready = [file for file, _ in poll.poll(POLL_MS)]
        _reap_children()
        if sys.stdin.fileno() in ready:
            return
        if not ready:
            continue
        connection = listener.accept()[0]
        with connection:
            request, files = _receive(connection)
            if request is not None and len(files) == 3 and is_same_start(given, request["environment"]):
                process = os.fork()
                if not process:
                    listener.close()
                    connection.close()
                    _become(request, files)
                connection.sendall(str(process).encode())
            for file in files:
                os.close(file)


def _reap_children() -> None:
    """Reap children that have ended, so that their CPU time is accounted to this process."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _receive(connection: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    connection.settimeout(REQUEST_SECONDS_MAX)
    files: list[int] = []
    try:
        data, files, _, _ = socket.recv_fds(connection, 1 << 16, 3)
        while more := connection.recv(1 << 16):
            data += more
        return json.loads(data), files
    except (OSError, ValueError):
        return None, files  # it has gone away; if not, it starts its process itself


def is_same_start(given: Mapping[str, str], requested: Mapping[str, str]) -> bool:
    """Whether two environments are equivalent for a worker process."""
    return _early(given) == _early(requested)


def _early(environment: Mapping[str, str]) -> dict[str, str]:
    settings = {name: value for name, value in environment.items() if value and name not in _SHELL and not name.startswith(_LATE)}
    if "PYTHONPATH" in settings:
        # Spark repeats what it has from several sides.
        settings["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(settings["PYTHONPATH"].split(os.pathsep)))
    return settings


def _become(request: Mapping[str, Any], files: list[int]) -> None:
    """Become the requested process: `python -m module argument…`."""
    code = 1
    try:
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.chdir(request["directory"])
        os.environ.clear()
        os.environ.update(request["environment"])
        _, module, *arguments = request["arguments"]
        sys.argv = [module, *arguments]
        sys.path[0] = request["directory"]
        _run(module)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except (BrokenPipeError, ConnectionResetError):
        pass  # Spark has stopped it, and takes no answer any more: nothing that a person should read of
    except BaseException:  # noqa: BLE001 # nothing may come back to the loop that it was forked from
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _run(module: str) -> None:
    if module == "pyspark.daemon":
        run_daemon()
        return
    sys.modules.pop(module, None)  # it is to be run, whether it was imported or not
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
