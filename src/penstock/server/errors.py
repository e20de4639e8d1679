"""Errors that keep a node from starting. Each kind has its own exit code in `penstock up`."""

from __future__ import annotations

from penstock.core.errors import ConfigError


class BadSettingError(ConfigError):
    """A setting is unknown or has an invalid value."""

    code = "bad_setting"


class DirectoryInUseError(ConfigError):
    """Another process uses the directory."""

    code = "directory_in_use"


class DirectoryUnusableError(ConfigError):
    """The directory cannot be created, read or written."""

    code = "directory_unusable"


class DirectoryMismatchError(ConfigError):
    """The directory was created with other settings, or by a newer Penstock."""

    code = "directory_mismatch"


class ListenError(ConfigError):
    """Listening on an address failed."""

    code = "cannot_listen"
