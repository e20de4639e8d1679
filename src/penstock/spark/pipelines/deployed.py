"""Pipelines that a node has in its care: the files that it keeps of them, read as their drivers and its checks read them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from penstock.spark.pipelines.errors import SpecError, SpecFault
from penstock.spark.pipelines.spec import PipelineSpec, RunSpec, TableSpec
from penstock.spark.pipelines.spec_file import read_file
from penstock.spark.pipelines.spec_reading import check


class DeployedFile(NamedTuple):
    """A file of a deployed pipeline: where the node has it, the directory that it came from, where data goes if that directory is
    not on this machine, the brokers of a file that names none, and the id of the last order to start over."""

    path: str
    directory: str
    data_directory: str
    brokers: str
    reset: str = ""


def read_deployed(file: DeployedFile) -> PipelineSpec:
    """The pipeline of a file. Relative paths of data and secrets begin where the file was deployed from, so that `run` and
    `deploy` mean the same; SpecError if they are used and there is no such directory here."""
    declaration = read_file(file.path)
    # Where the node has it says nothing to those who read the messages.
    origin = declaration.origin._replace(name=Path(file.path).name, directory=file.directory)
    spec = check(declaration._replace(origin=origin), file.brokers)
    is_here = Path(file.directory).is_dir()
    relative = [] if is_here else [name for name, path in _data_paths(spec) if _is_relative(path)]
    if relative:
        what = f"a relative path begins at {file.directory}, which is not on the node; give a whole path, or s3://…"
        raise SpecError([SpecFault(*spec.origin.fault(name, what)) for name in relative])
    run = RunSpec(reset=file.reset)
    return replace(spec, run=run, data_directory=file.directory if is_here else file.data_directory)


def _data_paths(spec: PipelineSpec) -> list[tuple[str, str | None]]:
    def location(table: TableSpec | None) -> str | None:
        return None if table is None else table.location

    transform = spec.transform
    return [
        ("source.files.path", None if spec.source.files is None else spec.source.files.path),
        ("source.table.location", location(spec.source.table)),
        ("target.table.location", location(spec.target.table)),
        ("dead_letters.table.location", location(spec.dead_letters.table)),
        ("transform.checkpoint", None if transform is None else transform.checkpoint),
        *((f"transform.tables.{name}", location(table)) for name, table in (transform.tables if transform else {}).items()),
    ]


def _is_relative(path: str | None) -> bool:
    return path is not None and "://" not in path and not Path(path).expanduser().is_absolute()
