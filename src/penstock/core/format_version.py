"""The version that stored bytes begin with: what was written by a later Penstock is refused, never misread."""

from __future__ import annotations

from penstock.core.errors import ConfigError, CorruptionError


def check_version(version: int, known: int, name: str) -> None:
    """Raise unless something stored in this format can be read by code that knows formats 1 to `known`."""
    if version > known:
        raise ConfigError(f"{name} has format {version}, this version of Penstock reads up to {known}; upgrade Penstock")
    if version < 1:
        raise CorruptionError(f"{name} is in no format that ever was: it begins with {version}")
