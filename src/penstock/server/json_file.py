"""Small JSON files that are written rarely and atomically: `{"format": 1, …}`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.server.errors import DirectoryMismatchError, DirectoryUnusableError

FORMAT = 1


def read_fields(path: Path, wanted: Mapping[str, type]) -> dict[str, Any] | None:
    """The fields of the file, each of the type wanted; None if there is no file."""
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DirectoryUnusableError(f"cannot read {path}: {error.strerror}; check who owns it and the disk it is on") from error
    try:
        fields = json.loads(raw)
    except ValueError:
        fields = None
    if not isinstance(fields, dict) or not isinstance(fields.get("format"), int):
        raise DirectoryMismatchError(f"{path} is damaged; restore it from a copy, or name another directory")
    if fields["format"] > FORMAT:
        raise DirectoryMismatchError(
            f"{path} has format {fields['format']}, and this version of Penstock reads up to {FORMAT}; upgrade Penstock"
        )
    for key, kind in wanted.items():
        if not isinstance(fields.get(key), kind):
            raise DirectoryMismatchError(f"{path} is damaged: {key} is missing or wrong; restore it from a copy")
    return fields


def write_fields(path: Path, fields: Mapping[str, Any]) -> None:
    """Write the file atomically. Raises OSError if that fails."""
    new = path.with_name(path.name + ".new")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w", encoding="utf-8") as file:
        file.write(json.dumps({"format": FORMAT, **fields}, indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
