"""The archive of Spark's classes: made of the classes that a Java lists, used by those that follow once it is whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from penstock.spark.class_archive import ARCHIVES_MAX, archive_options, main
from penstock.spark.launchers import launcher_home

ENDED_PROCESS: Final = 1 << 30  # no system has so many


@pytest.fixture
def java_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    home = tmp_path / "java"
    for directory in (tmp_path / "spark" / "jars", home / "bin"):
        directory.mkdir(parents=True)
    (home / "bin" / "java").touch()
    return home


def listed_by(options: str) -> Path:
    """Where Java is asked to list its classes."""
    option = options.split(maxsplit=1)[0]
    assert option.startswith("-XX:DumpLoadedClassList=")
    return Path(option.partition("=")[2])


def make_java(java_home: Path, script: str) -> None:
    (java_home / "bin" / "java").write_text(f"#!/bin/sh\n{script}\n")
    (java_home / "bin" / "java").chmod(0o755)


def test_an_archive_is_used_once_it_is_whole(java_home: Path) -> None:
    make_java(java_home, 'for each; do case "$each" in -XX:SharedArchiveFile=*) echo classes > "${each#*=}";; esac; done')
    listed = listed_by(archive_options(java_home, writes=True))
    listed.touch()
    assert listed_by(archive_options(java_home, writes=True)) == listed
    main(listed, "a.jar", java_home, ENDED_PROCESS)
    option, _, archive = archive_options(java_home, writes=True).split()[0].partition("=")
    assert option == "-XX:SharedArchiveFile"
    assert Path(archive).read_text() == "classes\n"
    assert {path.suffix for path in launcher_home().iterdir()} == {".jsa", ".lock"}


def test_a_java_that_cannot_make_one_leaves_nothing_behind(java_home: Path) -> None:
    make_java(java_home, 'for each; do case "$each" in -XX:SharedArchiveFile=*) echo half > "${each#*=}";; esac; done; exit 1')
    listed = listed_by(archive_options(java_home, writes=True))
    listed.touch()
    main(listed, "a.jar", java_home, ENDED_PROCESS)
    assert archive_options(java_home, writes=False) == ""
    assert {path.suffix for path in launcher_home().iterdir()} == {".lock"}


def test_classes_are_not_listed_unasked(java_home: Path) -> None:
    assert archive_options(java_home, writes=False) == ""
    listed_by(archive_options(java_home, writes=True)).with_suffix("").with_suffix(".jsa").write_text("classes")
    assert archive_options(java_home, writes=False).startswith("-XX:SharedArchiveFile=")


def test_three_archives_are_kept_at_most(java_home: Path) -> None:
    for number in range(ARCHIVES_MAX + 1):
        path = launcher_home() / f"classes-{number}.jsa"
        path.touch()
        os.utime(path, (number, number))
    archive_options(java_home, writes=True)
    assert {path.name for path in launcher_home().iterdir()} == {"classes-2.jsa", "classes-3.jsa"}


def test_another_java_has_another_archive(java_home: Path) -> None:
    listed = listed_by(archive_options(java_home, writes=True))
    (java_home / "bin" / "java").write_text("another")
    assert listed_by(archive_options(java_home, writes=True)) != listed


def test_there_is_none_for_a_spark_with_settings_in_files(java_home: Path) -> None:
    (java_home.parent / "spark" / "conf").mkdir()
    assert archive_options(java_home, writes=True)
    (java_home.parent / "spark" / "conf" / "spark-defaults.conf").touch()
    assert archive_options(java_home, writes=True) == ""
