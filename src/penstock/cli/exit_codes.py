"""How every command ends: what its exit code tells a script."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class ExitCode(IntEnum):
    """The exit codes of all commands; a code means the same in each."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NO_CONNECTION = 3
    DIRECTORY_IN_USE = 4
    DIRECTORY_UNUSABLE = 5
    DIRECTORY_MISMATCH = 6
    CANNOT_LISTEN = 7
    INTERRUPTED = 130


MEANINGS: Final = {
    ExitCode.OK: "done; of `penstock up`: stopped as asked, with SIGTERM or SIGINT",
    ExitCode.FAILED: "the request was refused or failed; standard error says why",
    ExitCode.USAGE: "wrong usage: an option, an argument, a setting or an input line is not as it must be",
    ExitCode.NO_CONNECTION: "no node could be reached, or the connection was lost and not regained in time",
    ExitCode.DIRECTORY_IN_USE: "another process works in the data directory or on one of the disks",
    ExitCode.DIRECTORY_UNUSABLE: "a directory cannot be made, read or written",
    ExitCode.DIRECTORY_MISMATCH: "the data directory was made otherwise, by a newer Penstock, or its data is missing",
    ExitCode.CANNOT_LISTEN: "an address cannot be listened on, mostly because the port is taken",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C; a second signal ends `penstock up` at once with 128 and the signal's number",
}
