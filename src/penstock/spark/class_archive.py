"""An archive of Spark's loaded classes (Java CDS), with which a start takes about half of the CPU time.

A session that is asked to writes the archive when its Java ends, beside the launchers; it takes longer for that, so none does by
itself. Java writes the beginning of the file last and looks whether it fits its version, its options and the jars, and loads
classes as usual if not. An archive does not outlive the running system: what a power failure has left half-written is never read.
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import Final

from penstock.spark.launchers import launcher_home

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
# Java would print every class that it cannot archive.
_QUIET: Final = "-Xlog:disable -Xlog:all=error:stderr"


def archive_options(java_home: Path, *, writes: bool) -> str:
    """Options for Java: to use the archive or, if there is none yet and it `writes`, to write one; none if this Java or this
    Spark cannot."""
    spark_home = _spark_home()
    if spark_home is None or not _BOOT.exists() or not (java_home / "lib" / "server" / "classes.jsa").exists():
        return ""
    directory = launcher_home()
    if " " in str(directory):
        return ""  # options are told apart by spaces
    boot = _BOOT.read_text(encoding="ascii").strip()
    java = (java_home / "bin" / "java").resolve()
    said = f"{boot} {java} {java.stat().st_mtime_ns} {spark_home} {(spark_home / 'jars').stat().st_mtime_ns}"
    name = f"classes-{sha256(said.encode()).hexdigest()[:16]}"
    archive = directory / f"{name}.jsa"
    for written in directory.glob(f"{name}.*.part"):
        if not _is_whole(written):
            continue  # it is being written, or never will be whole
        if archive.exists() and archive.stat().st_size >= written.stat().st_size:
            written.unlink(missing_ok=True)
        else:
            written.replace(archive)  # processes that have the old one open keep it
    if archive.exists():
        return f"-XX:SharedArchiveFile={archive} {_QUIET}"
    if not writes:
        return ""
    for old in directory.glob("classes-*"):
        if not old.name.startswith(name):
            old.unlink(missing_ok=True)
    return f"-XX:ArchiveClassesAtExit={directory / name}.{os.getpid()}.part {_QUIET}"


def _spark_home() -> Path | None:
    """Where Spark is, if what is first in its class path is jars alone: Java makes no archive of a directory with files."""
    import pyspark

    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    settings = Path(os.environ.get("SPARK_CONF_DIR") or home / "conf")
    has_files = settings.is_dir() and any(settings.iterdir())
    return None if has_files or not (home / "jars").is_dir() else home


def _is_whole(archive: Path) -> bool:
    with archive.open("rb") as file:
        return any(file.read(4))
