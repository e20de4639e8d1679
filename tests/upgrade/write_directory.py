"""Writes a data directory with every kind of content and archives it: `python -m tests.upgrade.write_directory VERSION`.

Run it on the last commit before a stored format changes. It makes two archives: one with a single disk, of a node that was killed
(so that its logs must be replayed), and one of the erasure kind block-4-2, of a node that was shut down."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.upgrade.clients import clients_of
from tests.upgrade.directories import ARCHIVES, SUFFIX, Directory

USAGE = "usage: python -m tests.upgrade.write_directory VERSION, such as 0.2; archives that exist are kept"


def write_directory(archive: Path, erasure: str, *, kill: bool) -> None:
    """Write one archive."""
    with tempfile.TemporaryDirectory() as temporary:
        directory = Directory(Path(temporary))
        with clients_of(directory.folder, "--erasure", erasure, "--retention-interval-s", "0.2") as clients:
            directory.write(clients, with_snapshot=erasure == "none")
            directory.check(clients)
            if kill:
                clients.node.kill()
            else:
                assert clients.node.stop() == 0
        directory.pack(archive)


def main(argv: list[str]) -> int:
    """Write the archives of a version; the exit code."""
    if len(argv) != 1:
        sys.stderr.write(USAGE + "\n")
        return 2
    ARCHIVES.mkdir(exist_ok=True)
    for erasure, kill in (("none", True), ("block-4-2", False)):
        archive = ARCHIVES / f"{argv[0]}-{erasure}{SUFFIX}"
        if archive.exists():
            sys.stderr.write(f"{archive} exists already; delete it first, or name another version\n")
            return 1
        write_directory(archive, erasure, kill=kill)
        sys.stdout.write(f"{archive}: {archive.stat().st_size} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
