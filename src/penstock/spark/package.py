"""The package for executors: an archive for `spark.archives` with Penstock, what its tasks import, and a launcher for Python.

    bin/penstock-python      runs the executor's Python, of the version that the package is for, with the packages below
    site-packages/           Penstock, compiled, and the libraries of its tasks; Spark's own Python files are on every executor

Executors need Spark, its Java, and a Python of the same version and platform; nothing else is installed there.
"""

from __future__ import annotations

import io
import os
import re
import sys
import tarfile
from collections.abc import Iterator
from hashlib import sha256
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

import penstock
from penstock.core.errors import ConfigError
from penstock.spark.executor_package import PYTHON
from penstock.spark.launchers import launcher_home

KEPT_S: Final = 7 * 86400.0
# What tasks import; the other dependencies are those of nodes and commands.
LIBRARIES: Final = (
    "cramjam",
    "crc32c",
    "fastavro",
    "google-re2",
    "msgspec",
    "numpy",
    "obstore",
    "pandas",
    "protobuf",
    "pyarrow",
    "pyyaml",
    "sortedcontainers",
)
_LEFT_OUT: Final = re.compile(r"(^|/)(tests?|include|__pycache__|console/(docs_)?static)(/|$)|\.(pyc|pyx|pxd|pyi|c|h|a|pxi)$")
_REQUIREMENT: Final = re.compile(r"\s*([A-Za-z0-9._-]+)")

_LAUNCHER: Final = """#!/bin/sh
here=$(cd "$(dirname "$0")/.." && pwd)
for python in "$PENSTOCK_PYTHON" python{version} python3; do
    if [ -n "$python" ] && "$python" -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != "{version}")' 2>/dev/null; then
        PYTHONPATH="$here/site-packages${{PYTHONPATH:+:$PYTHONPATH}}" exec "$python" "$@"
    fi
done
echo "this executor has no Python {version}, for which the package of Penstock was made: install it, or say where it is with" \\
    "spark.executorEnv.PENSTOCK_PYTHON" >&2
exit 1
"""


class PackageError(ConfigError):
    """The package for executors cannot be made."""

    code = "spark_package"


def write_package(path: Path) -> int:
    """Write the archive, compressed if its name ends with gz. Returns its size in bytes."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with _opened(fresh, compresses=path.name.endswith("gz")) as archive:
            launcher = _LAUNCHER.format(version=_version()).encode()
            entry = tarfile.TarInfo(f"bin/{PYTHON}")
            entry.size, entry.mode = len(launcher), 0o755
            archive.addfile(entry, io.BytesIO(launcher))
            for name, file in _files():
                archive.add(file, f"site-packages/{name}", recursive=False)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    return path.stat().st_size


def cached_package() -> Path:
    """The archive of what is installed here, written when it is asked for first."""
    digest = sha256(_version().encode())
    for name, file in _files():
        about = file.stat()
        digest.update(f"{name} {about.st_size} {about.st_mtime_ns}".encode())
    path = launcher_home() / f"package-{digest.hexdigest()[:16]}.tar.gz"
    if not path.exists():
        write_package(path)
        _forget_old(path)
    return path


def _forget_old(newest: Path) -> None:
    """Delete packages that no running session can have sent lately."""
    for other in newest.parent.glob("package-*.tar.gz"):
        if newest.stat().st_mtime - other.stat().st_mtime > KEPT_S:
            other.unlink(missing_ok=True)


def _version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _opened(path: Path, *, compresses: bool) -> tarfile.TarFile:
    # Libraries in machine code: a higher level gains little and takes minutes.
    return tarfile.open(path, "w:gz", compresslevel=1) if compresses else tarfile.open(path, "w")


def _files() -> Iterator[tuple[str, Path]]:
    """The files of the package, by their path below site-packages."""
    root = Path(penstock.__file__).parent
    if not any((root / "kernels").glob(f"*{EXTENSION_SUFFIXES[0]}")):
        raise PackageError(f"Penstock at {root} is not compiled for this platform; install its wheel, and make the package again")
    for package in (root, root.parent / "pyspark_penstock"):
        for file in sorted(package.rglob("*")):
            name = file.relative_to(root.parent).as_posix()
            if file.is_file() and not _LEFT_OUT.search(name):
                yield name, file
    for each in _distributions():
        for entry in each.files or ():
            name = entry.as_posix()
            file = Path(str(entry.locate()))
            if not name.startswith("..") and not _LEFT_OUT.search(name) and file.is_file():
                yield name, file


def _distributions() -> list[Distribution]:
    """The libraries, and those that they need in turn."""
    found: dict[str, Distribution] = {}
    wanted = [(name, True) for name in LIBRARIES]
    while wanted:
        name, is_asked_for = wanted.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in found:
            continue
        try:
            found[key] = distribution(name)
        except PackageNotFoundError:
            # Optional ones, and those for other platforms, are not there.
            if is_asked_for and key in ("numpy", "pyarrow", "pandas"):
                raise PackageError(f"{name} is not installed here: pip install 'penstock[spark]'") from None
            continue
        for line in found[key].requires or ():
            requirement = _REQUIREMENT.match(line)
            if requirement is not None and "extra ==" not in line:
                wanted.append((requirement[1], False))
    return [found[key] for key in sorted(found)]
