"""The wheel and the source archive: what is in them, and that they work without the source tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

import pytest

from tests.e2e.running_node import environment
from tests.typed_modules import typed_modules

ROOT = Path(__file__).resolve().parents[2]
FILES = (
    "pyproject.toml",
    "setup.py",
    "build_backend.py",
    "MANIFEST.in",
    "README.md",
    "README.ru.md",
    "LICENSE",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
)
KERNELS = sorted(
    f"penstock.kernels.{path.stem}" for path in (ROOT / "src/penstock/kernels").glob("*.py") if path.stem != "__init__"
)
EXTRAS = {"all", "cluster", "dev", "s3", "spark", "stream", "tarantool", "ydb", "yt"}
BUILD_SDIST = "import sys, build_backend as backend; print(backend.build_sdist(sys.argv[1]))"
FIRST_MESSAGES = """
set -e
penstock --version
penstock up --data-dir data --kafka-port 0 --http-port 0 -o json > ready &
trap 'kill $!; wait $!' EXIT
for _ in $(seq 200); do [ -s ready ] && break; sleep 0.1; done
PENSTOCK_BOOTSTRAP=127.0.0.1:$(python -c 'import json; print(json.load(open("ready"))["listeners"]["kafka"]["port"])')
export PENSTOCK_BOOTSTRAP
printf 'one\\ntwo\\n' | penstock produce greetings
penstock consume greetings
python -c 'import penstock; print(penstock.__file__)'
"""


def _run(argv: list[str], folder: Path, timeout: float = 110.0, variables: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        argv, cwd=folder, capture_output=True, text=True, timeout=timeout, check=False, env=environment(variables)
    )
    assert done.returncode == 0, f"{argv}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
    return done.stdout


def _copy_of_the_tree(folder: Path) -> Path:
    """A copy of what a build needs, so that it leaves nothing in the source tree."""
    for name in FILES:
        if (ROOT / name).exists():
            shutil.copy2(ROOT / name, folder / name)
    for name in ("src", "docs", "deploy", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so"))
    return folder


def _lend_compiled_kernels(folder: Path) -> None:
    """Put what is compiled in this environment where a build finds it made: compiling takes a while."""
    made = folder / "build" / f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    shutil.copytree(ROOT / "build" / "kernels", folder / "build" / "kernels")
    for source in (folder / "build" / "kernels").rglob("*.c"):
        os.utime(source)
    for compiled in (ROOT / "src/penstock").rglob("*.so"):
        place = made / compiled.relative_to(ROOT / "src")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(compiled, place)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built of a copy of the tree."""
    folder = _copy_of_the_tree(tmp_path_factory.mktemp("tree"))
    if (ROOT / "build" / "kernels").is_dir():
        _lend_compiled_kernels(folder)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", "dist", "."]
    _run(command, folder)
    (found,) = (folder / "dist").glob("penstock-*.whl")
    return found


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive."""
    folder = _copy_of_the_tree(tmp_path_factory.mktemp("tree"))
    (folder / "dist").mkdir()
    return folder / "dist" / _run([sys.executable, "-c", BUILD_SDIST, "dist"], folder).split()[-1]


def _package_files() -> Iterator[str]:
    """Every file of the packages in this tree that is to be in a wheel."""
    for path in (ROOT / "src").rglob("*"):
        relative = path.relative_to(ROOT / "src")
        if path.is_file() and "__pycache__" not in relative.parts and ".egg-info" not in str(relative) and path.suffix != ".so":
            yield str(relative)


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package_and_all_that_is_compiled(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert sorted(set(_package_files()) - names) == []
    compiled = {name.split(".")[0].replace("/", ".") for name in names if name.endswith(".so")}
    assert sorted(compiled) == sorted([*KERNELS, *typed_modules()])
    assert not [name for name in names if name.startswith(("tests/", "bench/"))]


@pytest.mark.slow
def test_the_wheel_names_its_extras_and_its_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (about,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        described = Parser().parsestr(archive.read(about).decode())
        entry_points = archive.read(about.replace("METADATA", "entry_points.txt")).decode()
    assert set(described.get_all("Provides-Extra", [])) >= EXTRAS
    assert "penstock = penstock.cli.main:main" in entry_points


def test_all_means_all() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["all"] == [f"penstock[{','.join(sorted(set(extras) - {'all', 'dev'}))}]"]


@pytest.mark.slow
def test_an_installed_wheel_works_without_the_source_tree(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    _run([sys.executable, "-m", "venv", "--without-pip", str(home)], tmp_path)
    site = Path(
        _run([str(home / "bin/python"), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], tmp_path).strip()
    )
    _run(
        [sys.executable, "-m", "pip", "--python", str(home / "bin/python"), "install", "--quiet", "--no-deps", str(wheel)],
        tmp_path,
    )
    # The libraries that it needs are those of this environment; a path file in there, such as that of our sources, is not read.
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    # Compiled kernels need no Cython, so it is as if it was not installed.
    (site / "cython.py").write_text("raise ModuleNotFoundError('there is no cython here', name='cython')\n")
    said = _first_messages(home, tmp_path)
    assert said[1:3] == ["one", "two"]
    assert Path(said[3]).is_relative_to(home)
    # As many kernels as there are, and none of them plain Python.
    assert f"all {len(KERNELS)} are compiled" in _run([str(home / "bin/penstock"), "doctor"], tmp_path)


def _first_messages(home: Path, folder: Path) -> list[str]:
    return _run(
        ["bash", "-c", FIRST_MESSAGES], folder, variables={"PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    ).splitlines()


@pytest.mark.slow
def test_the_source_archive_holds_what_a_build_needs(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert sorted({f"src/{name}" for name in _package_files()} - names) == []
    assert {"setup.py", "pyproject.toml", "LICENSE", "README.md", "docs/index.md", "deploy/systemd/penstock.service"} <= names
    assert not [name for name in names if name.endswith((".so", ".pyc"))]


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_the_source_archive_installs_with_pip_and_everything_it_needs(sdist: Path, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    _run([sys.executable, "-m", "venv", str(home)], tmp_path)
    _run([str(home / "bin/pip"), "install", "--quiet", f"{sdist}[all]"], tmp_path, timeout=1500)
    said = _first_messages(home, tmp_path)
    assert said[1:3] == ["one", "two"]
    demo = _run([str(home / "bin/penstock"), "demo", "--seconds", "5"], tmp_path, timeout=200)
    assert "Nothing was lost, nothing duplicated." in demo
