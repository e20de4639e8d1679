"""A Tarantool for tests, as installed or out of Debian's package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.debian_tools import unpacked_tool
from tests.ports import free_port
from tests.running_server import running_server

TARANTOOL_SCRIPT = """
box.cfg{listen = '127.0.0.1:%d', memtx_memory = 64 * 1024 * 1024, log_level = 3}
box.schema.user.grant('guest', 'super', nil, nil, {if_not_exists = true})
require('fio').open('ready', {'O_CREAT', 'O_WRONLY'}, tonumber('644', 8)):close()
require('fiber').sleep(1e9)
"""


@contextmanager
def running_tarantool(folder: Path) -> Iterator[str]:
    """A Tarantool with its data in a folder; where it is."""
    folder.mkdir(exist_ok=True)
    port = free_port()
    tool = unpacked_tool("tarantool")
    argv = [str(tool.program), "-e", TARANTOOL_SCRIPT % port]
    with running_server(argv, folder, port, dict(tool.variables), folder / "ready"):
        yield f"tarantool://127.0.0.1:{port}"
