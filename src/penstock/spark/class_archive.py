"""An archive of Spark's loaded classes (Java CDS), with which a start takes about half of the CPU time.

A session that is asked to has Java list the classes that it loads, beside the launchers. When the program ends, a detached
process of low priority makes the archive of them and renames it into place. Java looks whether an archive fits its version, its
options and the jars, and loads classes as usual if not. An archive does not outlive the running system: what a power failure has
left half-written is never read.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.spark.launchers import launcher_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVES_MAX: Final = 3
JAVA_END_SECONDS_MAX: Final = 60.0
WRITE_SECONDS_MAX: Final = 600.0

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
# Java would print every class that it cannot archive.
_QUIET: Final = "-Xlog:disable -Xlog:all=error:stderr"
_LEFT_BEHIND_S: Final = 86_400.0
_LIST_OPTION: Final = "-XX:DumpLoadedClassList="


def archive_options(java_home: Path, *, writes: bool) -> str:
    """Options for Java: to use the archive or, if there is none yet and it `writes`, to list the classes for one; none if this
    Spark cannot have one."""
    spark_home = _spark_home()
    if spark_home is None or not _BOOT.exists():
        return ""
    directory = launcher_home()
    if " " in str(directory):
        return ""  # options are told apart by spaces
    boot = _BOOT.read_text(encoding="ascii").strip()
    java = (java_home / "bin" / "java").resolve()
    said = f"{boot} {java} {java.stat().st_mtime_ns} {spark_home} {(spark_home / 'jars').stat().st_mtime_ns}"
    name = f"classes-{sha256(said.encode()).hexdigest()[:16]}"
    archive = directory / f"{name}.jsa"
    if archive.exists():
        return f"-XX:SharedArchiveFile={archive} {_QUIET}"
    if not writes:
        return ""
    _delete_old(directory)
    return f"{_LIST_OPTION}{directory / name}.{os.getpid()}.list {_QUIET}"


def _delete_old(directory: Path) -> None:
    """Delete all archives but the newest, which other versions of Spark or Java may use, and what killed processes have left."""
    archives = sorted(directory.glob("classes-*.jsa"), key=lambda path: path.stat().st_mtime)
    yesterday = time.time() - _LEFT_BEHIND_S
    left = [path for path in directory.glob("classes-*") if path.suffix != ".jsa" and path.stat().st_mtime < yesterday]
    for path in [*archives[: max(len(archives) - ARCHIVES_MAX + 1, 0)], *left]:
        path.unlink(missing_ok=True)


def write_archive_at_exit(spark: SparkSession) -> None:
    """Have the archive made when this program ends, if the Java of the session lists its classes."""
    context: Any = spark.sparkContext  # its gateway to Java has no types
    options = str(context.getConf().get("spark.driver.extraJavaOptions") or "").split()
    listed = next((option.removeprefix(_LIST_OPTION) for option in options if option.startswith(_LIST_OPTION)), None)
    java = getattr(context._gateway, "proc", None)
    if listed is None or java is None or not listed.endswith(f".{os.getpid()}.list"):
        return
    class_path = str(context._jvm.java.lang.System.getProperty("java.class.path"))
    command = [sys.executable, "-m", __name__, listed, class_path, os.environ["JAVA_HOME"], str(java.pid)]
    atexit.register(_start_detached, command)


def _start_detached(command: list[str]) -> None:
    nothing = subprocess.DEVNULL
    subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)


def main(listed: Path, class_path: str, java_home: Path, java_process: int) -> None:
    """Make the archive of listed classes, once the Java that lists them has ended. One process at a time does."""
    os.nice(19)
    archive = listed.with_name(f"{listed.name.split('.', maxsplit=1)[0]}.jsa")
    part = listed.with_suffix(".part")
    try:
        with archive.with_suffix(".lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if archive.exists() or not _has_ended(java_process):
                return
            dump = ["-Xshare:dump", f"-XX:SharedClassListFile={listed}", f"-XX:SharedArchiveFile={part}", *_QUIET.split()]
            command = [str(java_home / "bin" / "java"), *dump, "-cp", class_path]
            subprocess.run(command, check=True, timeout=WRITE_SECONDS_MAX, stdout=subprocess.DEVNULL)
            part.replace(archive)
    except (OSError, subprocess.SubprocessError):
        pass  # another process makes it, or this Java cannot: sessions start without one
    finally:
        part.unlink(missing_ok=True)
        listed.unlink(missing_ok=True)


def _has_ended(process: int) -> bool:
    """Wait for the end of a process. Returns whether it has ended in time."""
    deadline = time.monotonic() + JAVA_END_SECONDS_MAX
    while Path(f"/proc/{process}").exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _spark_home() -> Path | None:
    """Where Spark is, if what is first in its class path is jars alone: Java makes no archive of a directory with files."""
    import pyspark

    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    settings = Path(os.environ.get("SPARK_CONF_DIR") or home / "conf")
    has_files = settings.is_dir() and any(settings.iterdir())
    return None if has_files or not (home / "jars").is_dir() else home


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
