"""The few loops that go over single records, and what every Produce request goes through, compiled.

Each module is plain Python that Cython compiles when the package is built; where there is no compiler the same file runs as it
is, slowly, if Cython is installed. `COMPILED` says which it is.
"""

try:
    from penstock.kernels.record_scan import COMPILED, FIELDS, MalformedRecordsError, scan_records
except ModuleNotFoundError as error:
    if error.name != "cython":
        raise
    raise ImportError(
        "the kernels of this installation are not compiled: install a wheel, or install Penstock again where there is a C "
        "compiler; to run them as they are, at a small part of the speed, `pip install cython`"
    ) from error

__all__ = ["COMPILED", "FIELDS", "MalformedRecordsError", "scan_records"]
