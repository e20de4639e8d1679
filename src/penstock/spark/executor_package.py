"""How a session sends the package to the executors of a cluster, and has them use it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from penstock.spark.launchers import write_launcher

NAME: Final = "penstock_package"  # the directory that executors find it in
PYTHON: Final = "penstock-python"
_ARCHIVES: Final = "spark.archives"
_PATH: Final = "spark.executorEnv.PATH"
_USUAL_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def needs_package(settings: Mapping[str, str]) -> bool:
    """Whether executors have to be sent the package: not if the user says which Python they use."""
    return not {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"} & os.environ.keys() and "spark.pyspark.python" not in settings


def package_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings with which executors unpack the package, and find its Python by the same name as this machine finds its own."""
    from penstock.spark.package import cached_package

    archives = [archive for archive in settings.get(_ARCHIVES, "").split(",") if archive]
    if not any(archive.endswith(f"#{NAME}") for archive in archives):
        archives.append(f"{cached_package()}#{NAME}")
    return {_ARCHIVES: ",".join(archives), _PATH: f"./{NAME}/bin:{settings.get(_PATH, _USUAL_PATH)}"}


def use_on_path(python: str) -> str:
    """Have processes of this session find an interpreter under the name that it has on executors. Returns that name: Spark starts
    Python by one name everywhere, on the driver to plan and on executors to run."""
    launcher: Path = write_launcher(f"cluster-{os.getpid()}/{PYTHON}", f"#!/bin/sh\nexec '{python}' \"$@\"\n")
    os.environ["PATH"] = f"{launcher.parent}{os.pathsep}{os.environ.get('PATH', _USUAL_PATH)}"
    return PYTHON
