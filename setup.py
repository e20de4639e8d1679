"""Compiles the kernels and bundles the console. Everything else about the package is in pyproject.toml."""

import os
import runpy
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

KERNELS = sorted(Path("src/penstock/kernels").glob("*.py"))
BUNDLER = Path("console/bundle.py")
# Commands that only describe the package or archive its sources; translating the kernels for them would take half a minute.
WITHOUT_KERNELS = frozenset({"dist_info", "egg_info", "sdist"})


def kernels() -> list[Extension]:
    """The kernels as extensions; none where Cython is not at hand. They are optional: without a compiler the modules stay
    plain Python."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    modules = [path for path in KERNELS if path.stem != "__init__"]
    # Without what a debugger would read, the files are a fifth of their size, and made sooner.
    extensions = [
        Extension(f"penstock.kernels.{path.stem}", [str(path)], optional=True, extra_compile_args=["-O3", "-g0"])
        for path in modules
    ]
    threads = os.cpu_count() or 1
    return cythonize(extensions, nthreads=threads, language_level=3, build_dir="build/kernels", include_path=["src"])


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


setup(
    ext_modules=[] if WITHOUT_KERNELS & set(sys.argv) else kernels(),
    cmdclass={"build_py": BuildPackage, "sdist": BuildSourceArchive},
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
)
