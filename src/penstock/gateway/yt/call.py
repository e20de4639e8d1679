"""One command of a client: its parameters, checked for their types, and its reply."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.gateway.yt.errors import GENERIC, YtError
from penstock.gateway.yt.formats import Format, parse_format
from penstock.gateway.yt.paths import Path, parse_path

if TYPE_CHECKING:
    from penstock.gateway.yt.cluster import Cluster

_MISSING: Any = object()
_FLAGS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Call:
    """A command with its parameters, body and caller."""

    cluster: Cluster
    name: str
    parameters: dict[str, Any]
    body: bytes = b""
    user: str = ""
    host: str = ""
    peer: str = ""  # the user of another cluster that forwards the command
    authorization: str | None = field(default=None, repr=False)

    def get(self, name: str) -> Any:
        """A parameter as it was sent. Returns None if it is missing."""
        return self.parameters.get(name)

    def path(self, name: str = "path") -> Path:
        """A required path."""
        return parse_path(self.get(name), name)

    def text(self, name: str, default: Any = _MISSING) -> Any:
        """A string parameter."""
        value = self.get(name)
        if value is None:
            return self._default(name, default)
        if not isinstance(value, str):
            raise YtError(GENERIC, f'parameter "{name}" is a string, not {type(value).__name__}')
        return str(value)

    def integer(self, name: str, default: Any = _MISSING) -> Any:
        """An integer parameter, also as digits."""
        value = self.get(name)
        if value is None:
            return self._default(name, default)
        if isinstance(value, str) and value.lstrip("-").isdigit():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise YtError(GENERIC, f'parameter "{name}" is a whole number, not {value!r}')
        return int(value)

    def flag(self, name: str, default: Any = False) -> Any:
        """A boolean parameter, also as a word."""
        value = self.get(name)
        if value is None:
            return self._default(name, default)
        return parse_flag(value, f'parameter "{name}"')

    def mapping(self, name: str) -> dict[str, Any]:
        """A map parameter; empty if it is missing."""
        value = self.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise YtError(GENERIC, f'parameter "{name}" is a map, not {type(value).__name__}')
        return value

    @property
    def transaction_id(self) -> str | None:
        """The transaction that the command is part of, if any."""
        transaction_id: str | None = self.text("transaction_id", None)
        return None if transaction_id is None or set(transaction_id) <= {"0", "-"} else transaction_id

    def output_format(self) -> Format:
        """The format of the reply."""
        return parse_format(self.get("output_format"))

    def input_format(self) -> Format:
        """The format of the body."""
        return parse_format(self.get("input_format"))

    def _default(self, name: str, default: Any) -> Any:
        if default is _MISSING:
            raise YtError(GENERIC, f'missing required parameter "{name}"')
        return default


class Reply(NamedTuple):
    """The reply of a command: a value, encoded rows, or a stream of encoded rows; and parameters of the response."""

    value: Any = None
    rows: bytes | None = None
    parameters: dict[str, Any] | None = None
    stream: AsyncIterator[bytes] | None = None


Handler = Callable[[Call], Awaitable[Reply]]


class Command(NamedTuple):
    """A command of the API: its handler, and what clients are told of it."""

    handler: Handler
    input_type: str | None = None
    output_type: str | None = "structured"
    is_volatile: bool = False
    is_heavy: bool = False
    takes_transaction: bool = False  # it may name a transaction
    is_in_memory: bool = False  # what it creates does not survive a restart

    @property
    def methods(self) -> tuple[str, ...]:
        """The HTTP methods it accepts, that of YT's clients first; a command that changes something is never a GET."""
        if self.input_type is not None:
            return ("PUT",)
        return ("POST",) if self.is_volatile else ("GET", "POST")

    def describe(self, name: str) -> dict[str, Any]:
        """The entry in the list of commands."""
        return {
            "name": name,
            "input_type": self.input_type or "null",
            "output_type": self.output_type or "null",
            "is_volatile": self.is_volatile,
            "is_heavy": self.is_heavy,
        }


def parse_flag(value: object, what: str) -> bool:
    """A boolean, also as a word or as 0 or 1."""
    flag = value if isinstance(value, bool) else _FLAGS.get(str(value))
    if flag is None and value in (0, 1):
        flag = bool(value)
    if flag is None:
        raise YtError(GENERIC, f"{what} is true or false, not {value!r}")
    return flag
