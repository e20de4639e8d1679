"""Compiles the kernels. Everything else about the package is in pyproject.toml."""

import os
from pathlib import Path

from setuptools import Extension, setup

KERNELS = sorted(Path("src/penstock/kernels").glob("*.py"))


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
    return cythonize(extensions, language_level=3, build_dir="build/kernels", include_path=["src"])


setup(ext_modules=kernels(), options={"build_ext": {"parallel": os.cpu_count() or 1}})
