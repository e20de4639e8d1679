"""Profiles: servers with the user to sign in as, saved under a name in a file that only its owner can read."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock.cli.failure import CommandError, usage

OWNER_ONLY: Final = 0o600
FOLDER_MODE: Final = 0o700


@dataclass(frozen=True, slots=True)
class Profile:
    """A server. Without `http` and `stream`, commands ask the server for these addresses."""

    bootstrap: str
    http: str | None = None
    stream: str | None = None
    user: str | None = None
    password: str | None = None
    password_file: str | None = None
    tls_ca: str | None = None


@dataclass(slots=True)
class Profiles:
    """All profiles, and the name of the current one."""

    current: str | None = None
    by_name: dict[str, Profile] = field(default_factory=dict)

    def named(self, name: str) -> Profile:
        """Returns a profile; CommandError if there is none of this name."""
        profile = self.by_name.get(name)
        if profile is None:
            raise usage(f"there is no profile {name!r}; `penstock profile list` lists the profiles")
        return profile


def profiles_path() -> Path:
    """Where profiles are saved."""
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(folder) / "penstock" / "profiles.json"


def load_profiles() -> Profiles:
    """Reads the file; no file is no profiles."""
    path = profiles_path()
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Profiles(content["current"], {name: _profile(fields) for name, fields in content["profiles"].items()})
    except FileNotFoundError:
        return Profiles()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CommandError(f"{path} cannot be read as profiles: {error}; correct or delete it") from error


def save_profiles(profiles: Profiles) -> None:
    """Replaces the file at once, with permissions for its owner only from the first byte on."""
    path = profiles_path()
    content = {"current": profiles.current, "profiles": {name: _fields(item) for name, item in profiles.by_name.items()}}
    new = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise CommandError(f"{path} cannot be written: {error}") from error


def _profile(fields: dict[str, Any]) -> Profile:
    return Profile(**{name: str(value) for name, value in fields.items()})


def _fields(profile: Profile) -> dict[str, str]:
    return {name: value for name, value in asdict(profile).items() if value is not None}
