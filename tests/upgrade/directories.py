"""Data directories with every kind of content, as archives that are named for the version that wrote them.

directories/0.1-none.tar.xz     data/         the data directory of a node
                                notes.json    {kind of content: what must be known to check it}
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Final

from tests.upgrade.clients import Clients
from tests.upgrade.content import Content, Notes
from tests.upgrade.gateway_contents import Streams, YdbTopics, YtQueues
from tests.upgrade.log_contents import Codecs, CompactedTopic, HeadAndBodies, LargeMessages, LogStarts
from tests.upgrade.producer_contents import Groups, IdempotentProducer, Transactions
from tests.upgrade.settings_contents import DynamicSettings, Quotas, UsersAndRules

ARCHIVES: Final = Path(__file__).parent / "directories"
SUFFIX: Final = ".tar.xz"
NOTES_NAME: Final = "notes.json"
# So many batches that the tablet takes a snapshot and has a log behind it. They take much room.
SNAPSHOT: Final = "snapshot"
# Transactions first: those that are open are aborted a while after the start.
CONTENTS: Final[tuple[Content, ...]] = (
    Transactions(),
    Codecs(),
    HeadAndBodies(),
    LargeMessages(),
    LogStarts(),
    CompactedTopic(),
    IdempotentProducer("idempotent", 7),
    IdempotentProducer(SNAPSHOT, 2_100),
    Groups(),
    YtQueues(),
    YdbTopics(),
    Streams(),
    UsersAndRules(),
    Quotas(),
    DynamicSettings(),
)


class Directory:
    """A data directory in a folder, with the notes on what it holds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / NOTES_NAME
        self.notes: dict[str, Notes] = json.loads(path.read_text()) if path.exists() else {}

    def write(self, clients: Clients, *, with_snapshot: bool) -> None:
        """Write every kind of content into an empty node."""
        # Open transactions last, so that they do not time out meanwhile.
        for content in reversed(CONTENTS):
            if with_snapshot or content.name != SNAPSHOT:
                content.write(clients, self._notes_of(content))

    def check(self, clients: Clients) -> None:
        """Check every kind of content that was there when the directory was written."""
        for content in self._known():
            content.check(clients, self._notes_of(content))

    def add(self, clients: Clients) -> None:
        """Go on with every kind of content."""
        for content in self._known():
            content.add(clients, self._notes_of(content))

    def pack(self, archive: Path) -> None:
        """Store the directory of a node that has stopped."""
        (self.folder / NOTES_NAME).write_text(json.dumps(self.notes, indent=1, sort_keys=True))
        with tarfile.open(archive, "w:xz", preset=9) as packed:
            for name in ("data", NOTES_NAME):
                packed.add(self.folder / name, name, filter=_without_owner)

    def _known(self) -> list[Content]:
        return [content for content in CONTENTS if content.name in self.notes]

    def _notes_of(self, content: Content) -> Notes:
        return self.notes.setdefault(content.name, {})


def unpack(archive: Path, folder: Path) -> Directory:
    """Returns a copy of an archived directory."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return Directory(folder)


def _without_owner(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info
