"""The suites that can be run, as pins.toml lists them, and where each of them is kept between runs."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CACHE = ROOT / ".compat"


@dataclass(frozen=True, slots=True)
class Suite:
    """One client's own tests: a version of it, what they need, and how many must pass."""

    name: str
    package: str
    version: str
    extras: tuple[str, ...]
    requirements: tuple[str, ...]
    files: tuple[str, ...]
    tests: tuple[str, ...]
    options: tuple[str, ...]
    environment: Mapping[str, str]
    default_partitions: int
    bar: int
    repository: str

    @property
    def client(self) -> str:
        """The client itself, as a requirement."""
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        return f"{self.package}{extras}=={self.version}"

    @property
    def is_of_registry(self) -> bool:
        """Whether its tests are of a schema registry."""
        return self.environment.get("COMPAT_SUBJECT") == "schema_registry"

    @property
    def plugin(self) -> str:
        """The pytest plugin of ours that brings the suite and the broker together."""
        return "penstock_" + self.package.replace("-", "_")

    @property
    def home(self) -> Path:
        """Where it is unpacked, with an environment of its own."""
        return CACHE / f"{self.package}-{self.version}"

    @property
    def checkout(self) -> Path:
        """Where its repository is looked for, if the archive on the package index holds no tests."""
        return CACHE / "sources" / f"{self.package}-{self.version}"


def all_suites() -> dict[str, Suite]:
    """Every suite of pins.toml, by name; one that is `like` another differs from it only in what it says itself."""
    pins: dict[str, dict[str, Any]] = tomllib.loads((HERE / "pins.toml").read_text(encoding="utf-8"))
    found: dict[str, Suite] = {}
    for name, pin in pins.items():
        base = pin.pop("like", None)
        fields = {"package": base or name, "environment": {}, **(pins[base] if base else {}), **pin}
        found[name] = Suite(name=name, **{key: _frozen(value) for key, value in fields.items()})
    return found


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
