"""Compiles the kernels and the produce path, and bundles the console. Everything else about the package is in pyproject.toml."""

import os
import runpy
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

PACKAGE = Path("src/penstock")
KERNELS = sorted((PACKAGE / "kernels").glob("*.py"))
# Modules of the produce path. Each has a .pxd beside it, which gives the compiler the types of attributes and methods; the module
# itself is plain Python, and runs as it is where it is not compiled.
TYPED = sorted(path.with_suffix(".py") for path in PACKAGE.rglob("*.pxd") if path.parent.name != "kernels")
BUNDLER = Path("console/bundle.py")
# Commands that only describe the package or archive its sources; translating the kernels for them would take half a minute.
WITHOUT_KERNELS = frozenset({"dist_info", "egg_info", "sdist"})


def extensions() -> list[Extension]:
    """The kernels and the typed modules; none where Cython is not at hand. They are optional: without a compiler the modules stay
    plain Python."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    kernels = [_extension(path, "-O3") for path in KERNELS if path.stem != "__init__"]
    typed = [_extension(path, "-O2") for path in TYPED]
    options = {"nthreads": os.cpu_count() or 1, "language_level": 3, "build_dir": "build/kernels", "include_path": ["src"]}
    # Annotations of typed modules are for mypy: their `int` has no bounds, and their `list` may be any sequence.
    plain = {"annotation_typing": False}
    return [*cythonize(kernels, **options), *cythonize(typed, compiler_directives=plain, **options)]


def _extension(path: Path, optimisation: str) -> Extension:
    name = ".".join(path.relative_to("src").with_suffix("").parts)
    # Without what a debugger would read, the files are a fifth of their size, and made sooner.
    return Extension(name, [str(path)], optional=True, extra_compile_args=[optimisation, "-g0"])


def remove_leftovers() -> None:
    """Delete what was compiled of modules that are no longer compiled: Python would import it in place of the source."""
    for compiled in PACKAGE.rglob("*.so"):
        if compiled.with_name(compiled.name.partition(".")[0] + ".py") not in {*KERNELS, *TYPED}:
            compiled.unlink()


def bundle_console() -> None:
    """Bundle the console if its sources are here: a source archive has it bundled already."""
    if BUNDLER.exists():
        runpy.run_path(str(BUNDLER))["bundle"]()


class BuildPackage(build_py):
    """Builds the package with the console in it."""

    def run(self) -> None:
        """Bundle first, since the list of package data is taken after that. In a clone `make setup` does it."""
        if not self.editable_mode:
            bundle_console()
        super().run()


class BuildSourceArchive(sdist):
    """Makes a source archive with the console bundled, so that installing it needs no node."""

    def run(self) -> None:
        """Bundle first."""
        bundle_console()
        super().run()


if "build_ext" in sys.argv:
    remove_leftovers()

# `make setup` compiles while pip installs what the package needs, and asks pip not to.
IS_COMPILED_APART = os.environ.get("PENSTOCK_EXTENSIONS") == "no"

setup(
    ext_modules=[] if IS_COMPILED_APART or WITHOUT_KERNELS & set(sys.argv) else extensions(),
    cmdclass={"build_py": BuildPackage, "sdist": BuildSourceArchive},
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
)
