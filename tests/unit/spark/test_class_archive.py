"""The archive of Spark's classes: written by the Java that is asked to, used by those that follow once it is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.spark.class_archive import archive_options
from penstock.spark.launchers import launcher_home


@pytest.fixture
def java_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    home = tmp_path / "java"
    for directory in (tmp_path / "spark" / "jars", home / "bin", home / "lib" / "server"):
        directory.mkdir(parents=True)
    (home / "bin" / "java").touch()
    (home / "lib" / "server" / "classes.jsa").touch()
    return home


def written_by(options: str) -> Path:
    """Where Java is asked to write an archive."""
    option = options.split(maxsplit=1)[0]
    assert option.startswith("-XX:ArchiveClassesAtExit=")
    return Path(option.partition("=")[2])


def test_an_archive_is_used_once_it_is_whole(java_home: Path) -> None:
    part = written_by(archive_options(java_home, writes=True))
    part.write_bytes(bytes(4) + b"classes")  # Java has not come to the beginning yet
    assert written_by(archive_options(java_home, writes=True)) == part
    part.write_bytes(b"\xa8\xba\x0b\xf0classes")
    option, _, archive = archive_options(java_home, writes=True).split()[0].partition("=")
    assert option == "-XX:SharedArchiveFile"
    assert Path(archive).read_bytes() == b"\xa8\xba\x0b\xf0classes"
    assert [path.name for path in launcher_home().iterdir()] == [Path(archive).name]


def test_none_is_written_unasked(java_home: Path) -> None:
    assert archive_options(java_home, writes=False) == ""
    written_by(archive_options(java_home, writes=True)).write_bytes(b"classes")
    assert archive_options(java_home, writes=False).startswith("-XX:SharedArchiveFile=")


def test_the_larger_of_two_archives_is_kept(java_home: Path) -> None:
    part = written_by(archive_options(java_home, writes=True))
    part.write_bytes(b"all of the classes")
    kept = archive_options(java_home, writes=True)
    part.write_bytes(b"some")
    assert archive_options(java_home, writes=True) == kept
    assert Path(kept.split()[0].partition("=")[2]).read_bytes() == b"all of the classes"


def test_another_java_has_another_archive(java_home: Path) -> None:
    part = written_by(archive_options(java_home, writes=True))
    part.write_bytes(b"classes")
    (java_home / "bin" / "java").write_text("another")
    (java_home / "bin" / "java").touch()
    assert written_by(archive_options(java_home, writes=True)) != part
    assert not part.exists()


def test_there_is_none_for_a_java_without_its_own_or_a_spark_with_settings_in_files(java_home: Path) -> None:
    (java_home.parent / "spark" / "conf").mkdir()
    assert archive_options(java_home, writes=True)
    (java_home.parent / "spark" / "conf" / "spark-defaults.conf").touch()
    assert archive_options(java_home, writes=True) == ""
    (java_home.parent / "spark" / "conf" / "spark-defaults.conf").unlink()
    (java_home / "lib" / "server" / "classes.jsa").unlink()
    assert archive_options(java_home, writes=True) == ""
