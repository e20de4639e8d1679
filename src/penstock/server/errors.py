"""Why a node does not start. Each kind has an exit code of its own in `penstock up`."""

from __future__ import annotations

from penstock.core.errors import ConfigError


class BadSettingError(ConfigError):
    """A setting is unknown, or has a value that it does not take."""

    code = "bad_setting"


class DirectoryInUseError(ConfigError):
    """Another process works in the directory."""

    code = "directory_in_use"


class DirectoryUnusableError(ConfigError):
    """The directory cannot be made, read or written."""

    code = "directory_unusable"


class DirectoryMismatchError(ConfigError):
    """The directory was made as something else than it is asked to be, or by a newer Penstock."""

    code = "directory_mismatch"


class ListenError(ConfigError):
    """An address cannot be listened on."""

    code = "cannot_listen"
