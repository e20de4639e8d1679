"""The few loops that go over single records, and what every Produce request goes through, compiled.

Each module is plain Python that Cython compiles when the package is built; where there is no compiler the same file runs as it
is, slowly. `COMPILED` says which it is.
"""

from penstock.kernels.record_scan import COMPILED, FIELDS, MalformedRecordsError, scan_records

__all__ = ["COMPILED", "FIELDS", "MalformedRecordsError", "scan_records"]
