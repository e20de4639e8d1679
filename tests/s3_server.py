"""An S3 server for tests: versitygw as installed, or built once from its published module.

Building takes a minute or two of Go, which comes from its wheel where the machine has none that is new enough. The program stays
in `build/` of the checkout. `make test` starts the build beside `make check`; a test that comes before it is done waits for it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.go_tools import BUILD_FLAGS, RunGo, built
from tests.ports import free_port
from tests.running_server import running_server

VERSION = "v1.8.0"
MODULE = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
ACCESS, SECRET, BUCKET = "penstock", "penstock-secret", "payloads"


@contextmanager
def running_s3(folder: Path) -> Iterator[dict[str, str]]:
    """An S3 server with one bucket; the variables by which clients find it."""
    program = s3_program()
    (folder / "data" / BUCKET).mkdir(parents=True, exist_ok=True)
    (folder / "side").mkdir(exist_ok=True)
    port = free_port()
    argv = [str(program), "--port", f"127.0.0.1:{port}", "posix", "--sidecar", str(folder / "side"), str(folder / "data")]
    with running_server(argv, folder, port, {"ROOT_ACCESS_KEY": ACCESS, "ROOT_SECRET_KEY": SECRET}):
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": ACCESS,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }


def s3_program() -> Path:
    """The server as installed or built before; otherwise builds it, or waits for the process that does."""
    installed = shutil.which("versitygw")
    if installed is not None:
        return Path(installed)
    return built(f"versitygw-{VERSION}", _build)


def _build(folder: Path, run_go: RunGo) -> Path:
    run_go("install", *BUILD_FLAGS, MODULE)
    return folder / "bin" / "versitygw"


if __name__ == "__main__":
    s3_program()
