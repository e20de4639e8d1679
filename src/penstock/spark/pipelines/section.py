"""Validates one mapping of a pipeline's file: fields are read by name, and errors are collected, not raised."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeVar

from penstock.spark.pipelines.errors import SpecFault
from penstock.spark.pipelines.references import UnresolvedError, resolve
from penstock.spark.pipelines.spec import Origin

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")
_DURATION_S: Final = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?b?)", re.IGNORECASE)
_SIZE_BYTES: Final = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}
_MISSING: Final = object()

T = TypeVar("T")


class Section:
    """A mapping at a path of the file."""

    def __init__(self, fields: Any, path: str, origin: Origin, faults: list[SpecFault]) -> None:
        self.path = path
        self._origin = origin
        self._faults = faults
        self._known: list[str] = []
        if not isinstance(fields, Mapping):
            self.blame("", f"it is {_named(fields)}; it takes fields with values")
            fields = {}
            self._known.append("")
        self._fields: Mapping[str, Any] = fields

    def blame(self, name: str, what: str) -> None:
        """Record an error of a field, or of the section itself without a name."""
        self._faults.append(self._origin.fault(self.at(name), what))

    def at(self, name: str) -> str:
        """The path of a field."""
        return f"{self.path}.{name}" if self.path and name else self.path or name

    def has(self, name: str) -> bool:
        """Whether a field is present and not empty."""
        return self._fields.get(name) is not None

    def names(self) -> list[str]:
        """The names of all fields present."""
        return [str(name) for name in self._fields]

    def raw(self, name: str, default: Any = None) -> Any:
        """The unchecked value of a field."""
        self._known.append(name)
        value = self._fields.get(name, _MISSING)
        return default if value is _MISSING or value is None else value

    def require(self, name: str, why: str) -> None:
        """Record an error if a field is missing."""
        if not self.has(name):
            self.blame(name if name in self._fields else "", f"{name} is missing; {why}")

    def text(self, name: str, default: str | None = None, choices: Sequence[str] = ()) -> str | None:
        """A string, or one of some choices."""
        value = self.raw(name, default)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            self.blame(name, f"it is {_named(value)}; it takes {_listed(choices) if choices else 'a text'}")
            return default
        value = str(value)
        if choices and value not in choices:
            self.blame(name, f"it is {value!r}{_meant(value, choices)}; it takes {_listed(choices)}")
            return default
        if not value.strip():
            self.blame(name, "it is empty; fill it in or leave it out")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts, or one."""
        value = self.raw(name)
        if value is None:
            return ()
        items = value if isinstance(value, list | tuple) else [value]
        if not items:
            self.blame(name, "it is empty; name at least one")
        for number, item in enumerate(items):
            if not isinstance(item, str) or not item.strip():
                where = f"{name}[{number}]" if isinstance(value, list | tuple) else name
                self.blame(where, f"it is {_named(item)}; it takes a text")
        return tuple(item for item in items if isinstance(item, str))

    def flag(self, name: str, default: bool) -> bool:
        """true or false."""
        value = self.raw(name, default)
        if not isinstance(value, bool):
            self.blame(name, f"it is {_named(value)}; it takes true or false")
            return default
        return value

    def whole(self, name: str, default: int, *, least: int) -> int:
        """A whole number."""
        value = self.raw(name, default)
        if isinstance(value, str) and value.replace("_", "").isdigit():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            self.blame(name, f"it is {_named(value)}; it takes a whole number from {least} on")
            return default
        return value

    def duration(self, name: str, default: float | None) -> float | None:
        """A duration in seconds."""
        value = self.raw(name)
        if value is None:
            return default
        seconds = duration_s(value)
        if seconds is None or seconds <= 0:
            self.blame(name, f"it is {_named(value)}; it takes a duration such as 30s, 5m, 1h or 10 minutes")
            return default
        return seconds

    def size(self, name: str, default: int) -> int:
        """A number of bytes."""
        value = self.raw(name)
        if value is None:
            return default
        match = _SIZE.fullmatch(str(value).strip())
        unit = match[2].lower().removesuffix("b") if match else "?"
        if match is None or unit not in _SIZE_BYTES or isinstance(value, bool) or float(match[1]) <= 0:
            self.blame(name, f"it is {_named(value)}; it takes a size such as 64MiB, 1GB or a number of bytes")
            return default
        return int(float(match[1]) * _SIZE_BYTES[unit])

    def share(self, name: str, default: float) -> float:
        """A share of a whole, such as 10% or 0.1."""
        value = self.raw(name, default)
        text = str(value).strip()
        try:
            share = float(text.removesuffix("%")) / 100 if text.endswith("%") else float(text)
        except ValueError:
            share = -1.0
        if isinstance(value, bool) or not 0 <= share <= 1:
            self.blame(name, f"it is {_named(value)}; it takes a share such as 10% or 0.1")
            return default
        return share

    def settings(self, name: str) -> dict[str, str]:
        """Names with texts."""
        settings = self.raw(name, {})
        if not isinstance(settings, Mapping):
            self.blame(name, f"it is {_named(settings)}; it takes names with values")
            return {}
        for key, value in settings.items():
            if isinstance(value, Mapping | list) or value is None:
                self.blame(f"{name}.{key}", f"it is {_named(value)}; it takes a text")
        return {str(key): self.resolved(f"{name}.{key}", _setting(value)) for key, value in settings.items()}

    def resolved(self, name: str, text: str) -> str:
        """A text with its references to variables and files replaced."""
        directory = Path(self._origin.directory or Path(self._origin.file).resolve().parent)
        try:
            return resolve(text, directory, quoted=name.endswith("sasl.jaas.config"))
        except UnresolvedError as error:
            self.blame(name, str(error))
            return text

    def file_content(self, name: str, path: str) -> bytes | None:
        """The content of a file beside the pipeline's."""
        try:
            return (Path(self._origin.file).resolve().parent / path).read_bytes()
        except OSError as error:
            self.blame(name, f"{path} cannot be read: {error}")
            return None

    def section(self, name: str) -> Section | None:
        """A nested mapping."""
        value = self.raw(name)
        return None if value is None else Section(value, self.at(name), self._origin, self._faults)

    def read(self, name: str, reader: Callable[[Section], T]) -> T | None:
        """A nested mapping, read and checked for unknown fields."""
        inner = self.section(name)
        if inner is None:
            return None
        value = reader(inner)
        inner.finish()
        return value

    def each(self, name: str, reader: Callable[[Section], T]) -> dict[str, T]:
        """Nested mappings with arbitrary names."""
        inner = self.section(name)
        if inner is None:
            return {}
        values = {key: inner.read(key, reader) for key in inner.names()}
        inner.finish()
        return {key: value for key, value in values.items() if value is not None}

    def finish(self) -> None:
        """Report every unknown field."""
        known = list(dict.fromkeys(self._known))
        for name in self._fields:
            if name not in known:
                near = get_close_matches(str(name), known, n=1, cutoff=0.6)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(filter(None, known)))}"
                self.blame(str(name), f"there is no such field; {hint}")


def duration_s(text: Any) -> float | None:
    """The seconds of a duration such as `5m` or `10 minutes`. Returns None if it is invalid."""
    match = _DURATION.fullmatch(str(text).strip().lower())
    if match is None or match[2] not in _DURATION_S:
        return None
    return float(match[1]) * _DURATION_S[match[2]]


def _setting(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _named(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return repr(str(value)) if not isinstance(value, bool | int | float) else str(value).lower()


def _listed(choices: Sequence[str]) -> str:
    return " or ".join([", ".join(choices[:-1]), choices[-1]] if len(choices) > 1 else choices)


def _meant(name: str, choices: Sequence[str]) -> str:
    near = get_close_matches(name, choices, n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else ""
