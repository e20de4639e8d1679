"""The few loops that go over single records, and what every Produce request goes through, compiled.

Each module is plain Python that Cython compiles when the package is built; where there is no compiler the same file runs as it
is, slowly, if Cython is installed. `COMPILED` says which it is, `plain_kernels` which of all are not compiled.
"""

from importlib.util import find_spec
from pathlib import Path

try:
    from penstock.kernels.record_scan import COMPILED, FIELDS, MalformedRecordsError, scan_records
except ModuleNotFoundError as error:
    if error.name != "cython":
        raise
    raise ImportError(
        "the kernels of this installation are not compiled: install a wheel, or install Penstock again where there is a C "
        "compiler; to run them as they are, at a small part of the speed, `pip install cython`"
    ) from error


def kernel_names() -> list[str]:
    """All kernels."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__")


def plain_kernels() -> list[str]:
    """Those that run as plain Python. Found by their files: importing one does not tell of the others."""
    specs = {name: find_spec(f"penstock.kernels.{name}") for name in kernel_names()}
    return [name for name, spec in specs.items() if spec is not None and (spec.origin or "").endswith(".py")]


__all__ = ["COMPILED", "FIELDS", "MalformedRecordsError", "kernel_names", "plain_kernels", "scan_records"]
