"""The data directory: what it remembers, and what it refuses to become."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from penstock.server import (
    BadSettingError,
    DirectoryInUseError,
    DirectoryMismatchError,
    DirectoryUnusableError,
    NodeConfig,
)
from penstock.server.data_directory import DataDirectory


@contextmanager
def _opened(config: NodeConfig) -> Iterator[DataDirectory]:
    directory = DataDirectory.open(config, Random(1))
    try:
        yield directory
    finally:
        directory.close()


def _make(config: NodeConfig) -> DataDirectory:
    with _opened(config) as directory:
        return directory


def _eight(tmp_path: Path) -> NodeConfig:
    return NodeConfig(data_dir=tmp_path / "data", erasure="block-4-2", disks=tuple(tmp_path / f"d{n}" for n in range(8)))


def _snapshot(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def test_what_it_was_made_as_is_there_at_the_next_start(tmp_path: Path) -> None:
    layout = _make(_eight(tmp_path)).layout
    assert _make(NodeConfig(data_dir=tmp_path / "data")).layout == layout
    assert _make(_eight(tmp_path)).layout == layout


def test_a_second_opening_is_refused_until_the_first_closes(tmp_path: Path) -> None:
    config = NodeConfig(data_dir=tmp_path / "data")
    with _opened(config), pytest.raises(DirectoryInUseError, match="in use by another process"):
        DataDirectory.open(config, Random(2))
    _make(config)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"erasure": "mirror-3-dc"}, "made with erasure block-4-2, not mirror-3-dc"), ({"node_id": 7}, "made for node 1, not 7")],
)
def test_other_settings_are_refused_and_nothing_is_touched(tmp_path: Path, change: dict[str, str | int], message: str) -> None:
    _make(_eight(tmp_path))
    before = _snapshot(tmp_path)
    with pytest.raises(DirectoryMismatchError, match=message):
        DataDirectory.open(NodeConfig(data_dir=tmp_path / "data", **change), Random(2))  # type: ignore[arg-type] # by name
    assert _snapshot(tmp_path) == before


def test_disks_in_another_order_are_refused(tmp_path: Path) -> None:
    config = _eight(tmp_path)
    _make(config)
    assert config.disks is not None
    before = _snapshot(tmp_path)
    with pytest.raises(DirectoryMismatchError, match=r"d7 is disk 7 of a block-4-2 group .* not disk 0"):
        DataDirectory.open(NodeConfig(data_dir=config.data_dir, disks=config.disks[::-1]), Random(2))
    assert _snapshot(tmp_path) == before


def test_disks_that_were_never_ours_are_refused_even_if_empty(tmp_path: Path) -> None:
    config = _eight(tmp_path)
    _make(config)
    others = tuple(tmp_path / f"e{n}" for n in range(8))
    with pytest.raises(DirectoryMismatchError, match="is not that disk moved"):
        DataDirectory.open(NodeConfig(data_dir=config.data_dir, disks=others), Random(2))
    assert not any(disk.exists() for disk in others)


def test_a_disk_that_moved_is_known_by_its_mark(tmp_path: Path) -> None:
    config = _eight(tmp_path)
    _make(config)
    assert config.disks is not None
    shutil.move(tmp_path / "d3", tmp_path / "moved")
    disks = (*config.disks[:3], tmp_path / "moved", *config.disks[4:])
    assert _make(NodeConfig(data_dir=config.data_dir, disks=disks)).layout.disks == disks
    assert _make(NodeConfig(data_dir=config.data_dir)).layout.disks == disks


def test_two_empty_disks_of_eight_are_taken_and_three_are_not(tmp_path: Path) -> None:
    config = _eight(tmp_path)
    _make(config)
    for number in (1, 2):
        shutil.rmtree(tmp_path / f"d{number}")
    _make(config)
    assert all((tmp_path / f"d{number}" / "penstock-disk.json").exists() for number in range(8))
    for number in (1, 2, 3):
        shutil.rmtree(tmp_path / f"d{number}")
    with pytest.raises(DirectoryMismatchError, match="the data is not there"):
        DataDirectory.open(config, Random(2))


def test_the_only_disk_is_never_taken_empty(tmp_path: Path) -> None:
    config = NodeConfig(data_dir=tmp_path / "data")
    _make(config)
    shutil.rmtree(tmp_path / "data" / "disk0")
    with pytest.raises(DirectoryMismatchError, match="the data is not there"):
        DataDirectory.open(config, Random(2))


def test_a_directory_that_lost_its_memory_takes_it_from_the_disks(tmp_path: Path) -> None:
    config = _eight(tmp_path)
    layout = _make(config).layout
    (config.data_dir / "node.json").unlink()
    assert _make(config).layout == layout


def test_disks_of_another_cluster_are_refused(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    _make(NodeConfig(data_dir=mine))
    DataDirectory.open(NodeConfig(data_dir=other), Random(5)).close()
    (mine / "disk0" / "penstock-disk.json").write_bytes((other / "disk0" / "penstock-disk.json").read_bytes())
    with pytest.raises(DirectoryMismatchError, match="of cluster"):
        DataDirectory.open(NodeConfig(data_dir=mine), Random(2))


def test_a_data_directory_can_be_moved_with_its_disks(tmp_path: Path) -> None:
    layout = _make(NodeConfig(data_dir=tmp_path / "one")).layout
    shutil.move(tmp_path / "one", tmp_path / "two")
    moved = _make(NodeConfig(data_dir=tmp_path / "two")).layout
    assert moved == layout._replace(disks=(tmp_path / "two" / "disk0",))


def test_a_directory_of_something_else_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("not yours", encoding="utf-8")
    with pytest.raises(DirectoryMismatchError, match=r"other files \(letter\.txt\)"):
        DataDirectory.open(NodeConfig(data_dir=tmp_path), Random(1))
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_a_disk_that_holds_something_else_is_not_taken_nor_any_other_touched(tmp_path: Path) -> None:
    (tmp_path / "d5").mkdir()
    (tmp_path / "d5" / "letter.txt").write_text("not yours", encoding="utf-8")
    with pytest.raises(DirectoryMismatchError, match=r"d5 holds other files \(letter\.txt\)"):
        DataDirectory.open(_eight(tmp_path), Random(1))
    assert not (tmp_path / "d0").exists()


def test_a_newer_format_asks_for_an_upgrade(tmp_path: Path) -> None:
    config = NodeConfig(data_dir=tmp_path / "data")
    _make(config)
    path = tmp_path / "data" / "node.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2}), encoding="utf-8")
    with pytest.raises(DirectoryMismatchError, match=r"has format 2, .* upgrade Penstock"):
        DataDirectory.open(config, Random(2))


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"format": 1}', '{"format": 1, "cluster_id": 5}'])
def test_a_damaged_memory_is_told(tmp_path: Path, content: str) -> None:
    config = NodeConfig(data_dir=tmp_path / "data")
    _make(config)
    (tmp_path / "data" / "node.json").write_text(content, encoding="utf-8")
    with pytest.raises(DirectoryMismatchError, match="is damaged"):
        DataDirectory.open(config, Random(2))


def test_a_file_in_the_place_of_a_directory_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DirectoryUnusableError, match="cannot use"):
        DataDirectory.open(NodeConfig(data_dir=tmp_path / "file"), Random(1))


@pytest.mark.parametrize(
    ("erasure", "disks", "message"),
    [
        ("block-4-2", ("a",), "needs 8 disks, but 1 is named"),
        (None, ("a", "b"), "needs 1 disk, but 2 are named"),
        ("block-4-2", ("a",) * 8, "named twice"),
    ],
)
def test_the_disks_must_fit_the_erasure(tmp_path: Path, erasure: str | None, disks: tuple[str, ...], message: str) -> None:
    config = NodeConfig(data_dir=tmp_path / "data", erasure=erasure, disks=tuple(tmp_path / disk for disk in disks))
    with pytest.raises(BadSettingError, match=message):
        DataDirectory.open(config, Random(1))


def test_a_new_directory_and_its_disks_are_the_users_own(tmp_path: Path) -> None:
    _make(_eight(tmp_path))
    folders = [tmp_path / "data", *(tmp_path / f"d{n}" for n in range(8))]
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}
    assert {path.stat().st_mode & 0o777 for folder in folders for path in folder.iterdir()} == {0o600}


def test_a_disk_that_hangs_at_the_start_is_waited_for_as_long_as_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(_eight(tmp_path), disk_timeout_s=0.2)
    _make(config)
    released = threading.Event()
    read = Path.read_bytes

    def hang(path: Path) -> bytes:
        if path.parent in (tmp_path / "d3", tmp_path / "d5"):
            assert released.wait(30)
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", hang)
    with _opened(config) as directory:
        directory.check_disk(2)
        with pytest.raises(TimeoutError, match="has not answered"):
            directory.check_disk(3)
        released.set()
        directory.check_disk(3)


def test_a_disk_that_is_not_there_or_another_is_not_used_while_the_node_runs(tmp_path: Path) -> None:
    with _opened(_eight(tmp_path)) as directory:
        (tmp_path / "d4").rename(tmp_path / "away")
        with pytest.raises(FileNotFoundError, match="d4 is empty or not mounted"):
            directory.check_disk(4)
        (tmp_path / "d4").mkdir()
        with pytest.raises(FileNotFoundError, match="d4 is empty or not mounted"):
            directory.check_disk(4)
        (tmp_path / "d4").rmdir()
        shutil.copytree(tmp_path / "d5", tmp_path / "d4")
        with pytest.raises(OSError, match="d4 is another disk than disk 4 of this node"):
            directory.check_disk(4)
        shutil.rmtree(tmp_path / "d4")
        (tmp_path / "away").rename(tmp_path / "d4")
        directory.check_disk(4)


def test_a_group_is_new_until_it_has_formed_and_never_in_a_directory_that_does_not_say(tmp_path: Path) -> None:
    config = _eight(tmp_path)
    assert not _make(config).layout.formed
    directory = DataDirectory.open(config, Random(2))
    assert not directory.layout.formed
    asyncio.run(directory.note_formed())
    directory.close()
    assert _make(config).layout.formed
    path = config.data_dir / "node.json"
    fields = json.loads(path.read_text(encoding="utf-8"))
    del fields["formed"]  # as an older version wrote it
    path.write_text(json.dumps(fields), encoding="utf-8")
    assert _make(config).layout.formed
