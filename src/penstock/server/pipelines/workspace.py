"""Where the node has the files and logs of deployed pipelines. All of it but the logs is made again from the stored deployments.

DATA/pipelines/NAME/VERSION/…       the files of a pipeline
DATA/pipelines/NAME/data/           its data, if it names relative paths of another machine
DATA/pipelines/NAME/log             the log of its driver, or for several that share one
DATA/pipelines/applications/APPLICATION.log
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

from penstock.server.pipelines.deployment import Deployment
from penstock.server.pipelines.driver_process import trim_log

APPLICATIONS: Final = "applications"
_STAGED: Final = ".staged"


class Workspace:
    """The directory `pipelines` of a data directory. Methods block: call them in a thread."""

    def __init__(self, data_dir: Path) -> None:
        self._root = data_dir.absolute() / "pipelines"

    def stage(self, files: dict[str, bytes]) -> Path:
        """Write files that are to be checked to a directory; one set of them at a time."""
        directory = self._root / _STAGED
        shutil.rmtree(directory, ignore_errors=True)
        _write(directory, files)
        return directory

    def write(self, deployment: Deployment) -> Path:
        """Write the files of a pipeline and remove those of other versions. Returns where they are."""
        own = self._root / deployment.name
        directory = own / str(deployment.version)
        _write(directory, deployment.files)
        for other in own.iterdir():
            if other.name.isdigit() and other != directory:
                shutil.rmtree(other, ignore_errors=True)
        return directory

    def remove(self, name: str) -> None:
        """Remove the files and the log of a pipeline; its data stays."""
        own = self._root / name
        for part in own.iterdir() if own.is_dir() else ():
            if part.name.isdigit():
                shutil.rmtree(part, ignore_errors=True)
        (own / "log").unlink(missing_ok=True)

    def log_of(self, deployment: Deployment) -> Path:
        """The log of the driver of a pipeline; its directory exists after this."""
        if deployment.application:
            path = self._root / APPLICATIONS / f"{deployment.application}.log"
        else:
            path = self._root / deployment.name / "log"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        trim_log(path)
        return path

    def deployed_file(self, deployment: Deployment, directory: Path, brokers: str) -> dict[str, Any]:
        """How drivers and checks are told of a pipeline's file that is in a directory."""
        return {
            "path": str(directory / deployment.file),
            "directory": deployment.directory,
            "data_directory": str(self._root / deployment.name / "data"),
            "brokers": brokers,
            "reset": deployment.reset,
        }


def _write(directory: Path, files: dict[str, bytes]) -> None:
    for path, content in files.items():
        place = directory / path
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.write_bytes(content)
