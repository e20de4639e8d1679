"""Compiles the kernels. Everything else about the package is in pyproject.toml."""

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
    extensions = [
        Extension(f"penstock.kernels.{path.stem}", [str(path)], optional=True, extra_compile_args=["-O3"]) for path in modules
    ]
    return cythonize(extensions, language_level=3, build_dir="build/kernels")


setup(ext_modules=kernels())
