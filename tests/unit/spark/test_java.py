"""Which Java Spark is run with."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from penstock.spark.errors import JavaMissingError
from penstock.spark.java import java_version, machine_java, packaged_java, use_java

FAKE = """#!/bin/sh
echo 'openjdk version "{version}" 2026-01-01' >&2
"""


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", "")  # so that it is put back, whatever a test does to it
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/usr/bin:/bin")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(
        "shutil.which", lambda name: str(tmp_path / "path" / name) if (tmp_path / "path" / name).exists() else None
    )


def a_java(home: Path, version: str) -> Path:
    java = home / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    java.write_text(FAKE.format(version=version))
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(("version", "number"), [("17.0.15", 17), ("21", 21), ("1.8.0_292", 8), ("25-ea", 25)])
def test_versions_are_read_in_all_their_forms(tmp_path: Path, version: str, number: int) -> None:
    assert java_version(a_java(tmp_path / "bin", version)) == number


def test_what_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert java_version(tmp_path / "java") is None


def test_java_home_goes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_java(tmp_path / "path", "17.0.1")
    a_java(tmp_path / "home" / "bin", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert machine_java() == tmp_path / "home"


def test_an_old_java_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_java(tmp_path / "path", "17.0.1")
    a_java(tmp_path / "home" / "bin", "11.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert machine_java() == (tmp_path / "path").parent
    a_java(tmp_path / "path", "11.0.1")
    assert machine_java() is None


def test_a_bare_machine_uses_the_packaged_one_without_the_module_it_lacks(tmp_path: Path) -> None:
    home = use_java()
    assert os.environ["JAVA_HOME"] == str(home)
    assert home.parent.parent == tmp_path
    assert packaged_java() == home
    done = subprocess.run(
        [
            home / "bin" / "java",
            "--add-modules=jdk.incubator.vector",
            "-Dname=with a space",
            "-XshowSettings:properties",
            "-version",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "name = with a space" in done.stderr


def test_no_java_at_all_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.spark.java.packaged_java", lambda: None)
    with pytest.raises(JavaMissingError, match="Install a JDK"):
        use_java()
