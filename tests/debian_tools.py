"""Programs that tests want and Python cannot install: those of the machine if it has them, else out of Debian's packages.

A package is unpacked, with the libraries that the machine lacks, into a folder of the system's for temporary files, once; nothing
is installed for that. What looks for its files in fixed places can only be installed, which needs root.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

CACHE = Path(os.environ.get("TEST_SERVERS_CACHE", Path(tempfile.gettempdir()) / "penstock-test-servers"))
FETCH_S = 300.0
_PACKAGE_FILE = re.compile(r"^'[^']+' ([^_\s]+)_\S+\.deb ", re.MULTILINE)
_DONE = ".unpacked"


class NotAvailableError(Exception):
    """A program cannot be had here; the message says why."""


class Tool(NamedTuple):
    """A program, and the variables that it needs to find its libraries."""

    program: Path
    variables: Mapping[str, str]

    def run(self, *argv: str, stdin: bytes = b"", timeout: float = 30.0) -> bytes:
        """Run it to its end, which must be a good one; what it printed."""
        environment = {**os.environ, **self.variables}
        command = [str(self.program), *argv]
        return subprocess.run(command, input=stdin, check=True, timeout=timeout, stdout=subprocess.PIPE, env=environment).stdout


def unpacked_tool(package: str, program: str | None = None) -> Tool:
    """A program as installed, or out of its package, unpacked."""
    name = program or package
    installed = shutil.which(name)
    if installed is not None:
        return Tool(Path(installed), {})
    root = CACHE / package
    with _locked(package):
        if not (root / _DONE).exists():
            _unpack(package, root)
    found = next((root / folder / name for folder in ("usr/bin", "bin", "usr/sbin") if (root / folder / name).exists()), None)
    if found is None:
        raise NotAvailableError(f"the package {package} has no program {name}")
    folders = sorted({str(library.parent) for library in root.rglob("*.so*")})
    return Tool(found, {"LD_LIBRARY_PATH": os.pathsep.join(folders)} if folders else {})


def installed_tool(package: str, program: str | None = None) -> Tool:
    """A program as installed; root has it installed first."""
    name = program or package
    if shutil.which(name) is None:
        if os.geteuid() != 0:
            raise NotAvailableError(f"{name} is not installed; run: apt-get install {package}")
        with _locked("install"):
            _refreshed(["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", package], CACHE)
    found = shutil.which(name)
    if found is None:
        raise NotAvailableError(f"the package {package} has no program {name}")
    return Tool(Path(found), {})


def _unpack(package: str, root: Path) -> None:
    """Fetch the package and what it needs that the machine has not, and lay them out below one folder."""
    listed = _refreshed(
        ["apt-get", "install", "--print-uris", "--quiet=2", "--yes", "--no-install-recommends", package], CACHE
    ).decode()
    names = sorted({*_PACKAGE_FILE.findall(listed), package})
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        _run(["apt-get", "download", "--quiet", *names], Path(folder))
        for file in sorted(Path(folder).glob("*.deb")):
            _run(["dpkg", "-x", str(file), str(root)], Path(folder))
    (root / _DONE).touch()


def _refreshed(argv: list[str], folder: Path) -> bytes:
    """Run a command of apt; if it does not know the package, once more with its lists brought up to date."""
    try:
        return _run(argv, folder)
    except NotAvailableError:
        if os.geteuid() != 0:
            raise
    _run(["apt-get", "update", "--quiet"], folder)
    return _run(argv, folder)


def _run(argv: list[str], folder: Path) -> bytes:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(argv, cwd=folder, capture_output=True, timeout=FETCH_S, check=False, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotAvailableError(f"{argv[0]} cannot be run: {error}") from error
    if done.returncode:
        raise NotAvailableError(f"{' '.join(argv)} failed: {done.stderr.decode(errors='replace')[-500:]}")
    return done.stdout


@contextmanager
def _locked(name: str) -> Iterator[None]:
    """Of several test processes, one fetches and the others wait for it."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
