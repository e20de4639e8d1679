"""The suites that can be run, as pins.toml lists them, and where each of them is kept between runs."""

from __future__ import annotations

import tomllib
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
    version: str
    extras: tuple[str, ...]
    requirements: tuple[str, ...]
    files: tuple[str, ...]
    tests: tuple[str, ...]
    options: tuple[str, ...]
    default_partitions: int
    bar: int
    repository: str

    @property
    def client(self) -> str:
        """The client itself, as a requirement."""
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        return f"{self.name}{extras}=={self.version}"

    @property
    def plugin(self) -> str:
        """The pytest plugin of ours that brings the suite and the broker together."""
        return "penstock_" + self.name.replace("-", "_")

    @property
    def home(self) -> Path:
        """Where it is unpacked, with an environment of its own."""
        return CACHE / f"{self.name}-{self.version}"

    @property
    def checkout(self) -> Path:
        """Where its repository is looked for, if the archive on the package index holds no tests."""
        return CACHE / "sources" / f"{self.name}-{self.version}"


def all_suites() -> dict[str, Suite]:
    """Every suite of pins.toml, by name."""
    pins = tomllib.loads((HERE / "pins.toml").read_text(encoding="utf-8"))
    return {name: Suite(name=name, **{key: _frozen(value) for key, value in pin.items()}) for name, pin in pins.items()}


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
