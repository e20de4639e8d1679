"""Modules with a .pxd beside them, which are compiled (see setup.py): whether what was compiled is the source as it is now, and
how to run the source instead."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

PACKAGE = Path(__file__).parents[1] / "src/penstock"
PLAIN = "PENSTOCK_TESTS_PLAIN"  # set to run typed modules as plain Python, as `make coverage` does


def _name(source: Path) -> str:
    return ".".join(source.relative_to(PACKAGE.parent).with_suffix("").parts)


def typed_modules() -> dict[str, Path]:
    """The source of each typed module, by the module's name."""
    sources = (path.with_suffix(".py") for path in sorted(PACKAGE.rglob("*.pxd")))
    return {_name(source): source for source in sources if source.parent.name != "kernels"}


def stale_modules() -> list[str]:
    """Names of modules whose source, or types, have changed since they were compiled."""
    return [
        _name(source)
        for compiled in sorted(PACKAGE.rglob("*.so"))
        for source in [compiled.with_name(compiled.name.split(".")[0] + ".py")]
        if any(path.exists() and path.stat().st_mtime > compiled.stat().st_mtime for path in (source, source.with_suffix(".pxd")))
    ]


def run_plain() -> None:
    """Has typed modules imported from their sources from now on."""
    sys.meta_path.insert(0, _SourceFinder)


class _SourceFinder(PathFinder):
    """Finds the sources of typed modules only."""

    sources = typed_modules()

    @classmethod
    def find_spec(cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The module's source, whether or not it is compiled too."""
        source = cls.sources.get(fullname)
        return (
            None if source is None else spec_from_file_location(fullname, source, loader=SourceFileLoader(fullname, str(source)))
        )
