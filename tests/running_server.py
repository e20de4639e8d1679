"""A server of somebody else's that a test starts, waits for and stops."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.debian_tools import NotAvailableError

START_S = 20.0


@contextmanager
def running_server(
    argv: list[str], folder: Path, port: int, variables: dict[str, str], mark: Path | None = None
) -> Iterator[None]:
    """A server that listens and, if it leaves a mark when it can be used, has left it: before that, clients give up on it."""
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(argv, cwd=folder, stdout=log, stderr=log, env={**os.environ, **variables})
    try:
        deadline = time.monotonic() + START_S
        while True:
            if process.poll() is not None or time.monotonic() > deadline:
                raise NotAvailableError(f"{argv[0]} does not start: {(folder / 'log').read_text()[-1000:]}")
            with socket.socket() as probe:
                if (mark is None or mark.exists()) and probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()
