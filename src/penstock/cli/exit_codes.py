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
    ExitCode.OK: "success; `penstock up`: clean shutdown after SIGTERM or SIGINT",
    ExitCode.FAILED: "the request was refused or failed; standard error says why",
    ExitCode.USAGE: "invalid usage: an option, an argument, a setting or an input line",
    ExitCode.NO_CONNECTION: "no node could be reached, or the connection was lost and not re-established in time",
    ExitCode.DIRECTORY_IN_USE: "another process uses the data directory or one of the disks",
    ExitCode.DIRECTORY_UNUSABLE: "a directory cannot be created, read or written",
    ExitCode.DIRECTORY_MISMATCH: "the data directory has other settings, is of a newer Penstock, or its data is missing",
    ExitCode.CANNOT_LISTEN: "cannot listen on an address, usually because the port is in use",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C; a second signal stops `penstock up` at once with 128 plus the signal's number",
}
