"""What a data directory of an upgrade test holds: kinds of content, each of which is written, checked and gone on with."""

from __future__ import annotations

from typing import Any, Protocol

from tests.upgrade.clients import Clients

# What must be remembered of a kind of content to check it later; stored as JSON beside the data directory.
Notes = dict[str, Any]


class Content(Protocol):
    """One kind of content. `check` passes after `write`, and again after each `add`, with the notes that these have made."""

    name: str

    def write(self, clients: Clients, notes: Notes) -> None:
        """Write it into an empty node."""

    def check(self, clients: Clients, notes: Notes) -> None:
        """Compare all of it with the notes."""

    def add(self, clients: Clients, notes: Notes) -> None:
        """Go on where `write` ended, perhaps on another version of Penstock."""
