"""One command of a client: its parameters, read as what they must be, and what is answered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.gateway.yt.errors import GENERIC, YtError
from penstock.gateway.yt.formats import Format, format_of
from penstock.gateway.yt.paths import Path, path_of

if TYPE_CHECKING:
    from penstock.gateway.yt.cluster import Cluster

_MISSING: Any = object()
_FLAGS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Call:
    """A command as it was asked."""

    cluster: Cluster
    name: str
    parameters: dict[str, Any]
    body: bytes = b""
    user: str = ""
    host: str = ""
    peer: str = ""  # the user of another cluster that passes this on
    authorization: str | None = field(default=None, repr=False)

    def get(self, name: str) -> Any:
        """A parameter as it is; None if it is not given."""
        return self.parameters.get(name)

    def path(self, name: str = "path") -> Path:
        """A path that must be given."""
        return path_of(self.get(name), name)

    def text(self, name: str, default: Any = _MISSING) -> Any:
        """A string."""
        value = self.get(name)
        if value is None:
            return self._default(name, default)
        if not isinstance(value, str):
            raise YtError(GENERIC, f'parameter "{name}" is a string, not {type(value).__name__}')
        return str(value)

    def whole(self, name: str, default: Any = _MISSING) -> Any:
        """A whole number."""
        value = self.get(name)
        if value is None:
            return self._default(name, default)
        if isinstance(value, str) and value.lstrip("-").isdigit():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise YtError(GENERIC, f'parameter "{name}" is a whole number, not {value!r}')
        return int(value)

    def flag(self, name: str, default: Any = False) -> Any:
        """True or false, also as a word."""
        value = self.get(name)
        if value is None:
            return self._default(name, default)
        return flag_of(value, f'parameter "{name}"')

    def mapping(self, name: str) -> dict[str, Any]:
        """A map; empty if it is not given."""
        value = self.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise YtError(GENERIC, f'parameter "{name}" is a map, not {type(value).__name__}')
        return value

    @property
    def transaction_id(self) -> str | None:
        """The transaction that it is part of; None if of none."""
        given: str | None = self.text("transaction_id", None)
        return None if given is None or set(given) <= {"0", "-"} else given

    def output_format(self) -> Format:
        """How the answer is to be written."""
        return format_of(self.get("output_format"))

    def input_format(self) -> Format:
        """How the body is written."""
        return format_of(self.get("input_format"))

    def _default(self, name: str, default: Any) -> Any:
        if default is _MISSING:
            raise YtError(GENERIC, f'missing required parameter "{name}"')
        return default


class Reply(NamedTuple):
    """What is answered: a value, or rows that are written already, at once or bit by bit; and parameters of the response."""

    value: Any = None
    rows: bytes | None = None
    parameters: dict[str, Any] | None = None
    stream: AsyncIterator[bytes] | None = None


Handler = Callable[[Call], Awaitable[Reply]]


class Command(NamedTuple):
    """A command of the API, as it is listed to clients, and who carries it out."""

    handler: Handler
    input_type: str | None = None
    output_type: str | None = "structured"
    is_volatile: bool = False
    is_heavy: bool = False
    takes_transaction: bool = False  # it is part of the transaction it names, or about that
    is_forgotten: bool = False  # what it makes does not outlive the process

    @property
    def methods(self) -> tuple[str, ...]:
        """The HTTP methods by which it is asked for, that of YT's clients first; what changes something is never a GET."""
        if self.input_type is not None:
            return ("PUT",)
        return ("POST",) if self.is_volatile else ("GET", "POST")

    def listed(self, name: str) -> dict[str, Any]:
        """As it is listed."""
        return {
            "name": name,
            "input_type": self.input_type or "null",
            "output_type": self.output_type or "null",
            "is_volatile": self.is_volatile,
            "is_heavy": self.is_heavy,
        }


def flag_of(value: object, what: str) -> bool:
    """True or false, also as a word."""
    found = value if isinstance(value, bool) else _FLAGS.get(str(value))
    if found is None and value in (0, 1):
        found = bool(value)
    if found is None:
        raise YtError(GENERIC, f"{what} is true or false, not {value!r}")
    return found
