"""Launcher scripts for programs that Spark starts, in a private directory of the user."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from penstock.core.errors import ConfigError
from penstock.spark.handover import FORKER

STOP_SECONDS_MAX: Final = 5.0


def launcher_home() -> Path:
    """The directory of launchers. Raises ConfigError if other users can write to it."""
    home = Path(tempfile.gettempdir()) / f"penstock-spark-{os.getuid()}"
    home.mkdir(mode=0o700, exist_ok=True)
    # What is run from there must be our own: anybody may write to the directory above.
    if home.is_symlink() or home.stat().st_uid != os.getuid() or home.stat().st_mode & 0o022:
        raise ConfigError(f"{home} is not ours alone; remove it, or set TMPDIR to a directory of your own")
    return home


def write_launcher(name: str, text: str) -> Path:
    """Write a script with this text, unless it exists."""
    launcher = launcher_home() / name
    if not launcher.exists() or launcher.read_text(encoding="utf-8") != text:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        fresh = launcher.with_name(f"{launcher.name}.{os.getpid()}")
        fresh.write_text(text, encoding="utf-8")
        fresh.chmod(0o755)
        fresh.replace(launcher)
    return launcher


def start_forker() -> None:
    """Start the process that Spark's Python processes are forked from, for the sessions of this one, with which it ends."""
    if FORKER in os.environ or not hasattr(os, "pidfd_open"):
        return
    os.environ[FORKER] = str(launcher_home() / f"forker-{os.getpid()}")
    # As Spark has it for its own.
    environment = {"PYTHONHASHSEED": "0", **os.environ, "PYTHONUNBUFFERED": "YES", "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER"}
    command = [sys.executable, "-m", "penstock.spark.process_forker"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
    atexit.register(_stop, process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
