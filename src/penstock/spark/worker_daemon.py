"""The process that Spark's Python workers on this machine are forked from. It has imported what tasks need, so that no worker has
to, and what it holds is left out of the garbage collection with which Spark ends every task."""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from pathlib import Path
from socket import socket
from typing import Final

# Read when Arrow is first imported. The one has the allocator that it does not use start no thread: a process with threads must
# not be forked. The other has the allocator that it does use keep the memory of a record batch for the next one.
ENVIRONMENT: Final = {"JE_ARROW_MALLOC_CONF": "background_thread:false", "MIMALLOC_PURGE_DELAY": "-1"}

_MODULES: Final = (
    "pyarrow.compute",
    "pyspark.worker",
    "penstock.spark.range_read",
    "penstock.spark.pipelines.row_sending",
    "penstock.spark.task_transaction",
    "penstock.spark.pipelines.views",
)
_THREADS: Final = Path("/proc/self/task")


def count_threads() -> int:
    """The number of threads of this process; 0 if it is unknown."""
    return len(list(_THREADS.iterdir())) if _THREADS.is_dir() else 0


def main() -> None:
    """Import, then act as Spark's own daemon; fall back to that one if an import has started a thread."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    for module in _MODULES:
        import_module(module)
    if count_threads() != 1:
        os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", *sys.argv[1:]])
    gc.collect()
    gc.freeze()
    run_daemon()


def run_daemon() -> None:
    """Run Spark's own daemon, with workers that end silently when Spark stops."""
    from pyspark import daemon

    work = daemon.worker

    def work_quietly(sock: socket, authenticated: bool) -> int:
        try:
            return work(sock, authenticated)
        except BrokenPipeError:
            return 1  # Spark has stopped, and takes no answer any more: nothing that a person should read of

    daemon.worker = work_quietly
    daemon.manager()


if __name__ == "__main__":
    main()
