"""Data directories that earlier versions have written: this one finds everything in them and goes on with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.upgrade.clients import clients_of
from tests.upgrade.directories import ARCHIVES, CONTENTS, SUFFIX, unpack

ALL = sorted(ARCHIVES.glob(f"*{SUFFIX}"))

pytestmark = [
    pytest.mark.slow,
    # Of the YT client, which leaves connections open.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def test_there_are_directories_of_both_kinds() -> None:
    assert {path.name.removesuffix(SUFFIX).partition("-")[2] for path in ALL} == {"none", "block-4-2"}


@pytest.mark.parametrize("archive", ALL, ids=lambda path: path.name.removesuffix(SUFFIX))
def test_a_directory_of_an_earlier_version_is_read_and_written(archive: Path, tmp_path: Path) -> None:
    directory = unpack(archive, tmp_path)
    assert directory.notes.keys() <= {content.name for content in CONTENTS}
    with clients_of(tmp_path) as clients:
        directory.check(clients)
        directory.add(clients)
        clients.node.kill()
    with clients_of(tmp_path) as clients:
        directory.check(clients)
        assert clients.node.stop() == 0
