"""Brings a suite onto this machine: its published source archive, its files in a folder of their own, and an environment.

Only the tests are copied, never the client beside them: what is tested with is the client as installed from the package index.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.compat.suites import CACHE, Suite


class NotPreparedError(Exception):
    """A suite cannot be run here; the message says what is missing and what to do."""


def prepare(suite: Suite) -> Path:
    """The python of an environment that can run the suite, whose files lie in its `run` folder."""
    _copy_files(suite, _source(suite))
    return _environment(suite)


def run_folder(suite: Suite) -> Path:
    """Where the suite's own files lie, as published."""
    return suite.home / "run"


def _source(suite: Suite) -> Path:
    if suite.checkout.is_dir():
        return suite.checkout
    unpacked = _unpacked_archive(suite)
    missing = [name for name in suite.tests if not (unpacked / name).exists()]
    if missing:
        raise NotPreparedError(
            f"the archive of {suite.package} {suite.version} on the package index has no {', '.join(missing)}; put the project's "
            f"source ({suite.repository}) into {suite.checkout.relative_to(CACHE.parent)} and run this again"
        )
    return unpacked


def _unpacked_archive(suite: Suite) -> Path:
    folder = suite.home / "archive"
    if not any(folder.glob("*/PKG-INFO")):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", suite.package]
        _run(suite, [*pip, "--dest", str(folder), f"{suite.package}=={suite.version}"], "download the source archive")
        for archive in folder.glob("*.tar.gz"):
            with tarfile.open(archive) as tar:
                tar.extractall(folder, filter="data")
    return next(folder.glob("*/PKG-INFO")).parent


def _copy_files(suite: Suite, source: Path) -> None:
    target = run_folder(suite)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in suite.files:
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name)
        else:
            shutil.copy(source / name, target / name)


def _environment(suite: Suite) -> Path:
    """An environment made once for these exact requirements."""
    folder = suite.home / "venv"
    python = folder / "bin" / "python"
    wanted = [suite.client, *suite.requirements]
    stamp = folder / f"installed-{hashlib.sha256(' '.join(wanted).encode()).hexdigest()[:12]}"
    if not stamp.exists():
        shutil.rmtree(folder, ignore_errors=True)
        _run(suite, [sys.executable, "-m", "venv", str(folder)], "make an environment")
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
        _run(suite, [*pip, *wanted], "install what it needs")
        stamp.touch()
    return python


def _run(suite: Suite, command: list[str], purpose: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotPreparedError(f"{suite.name}: cannot {purpose}: {done.stderr.strip()[-1500:]}")
