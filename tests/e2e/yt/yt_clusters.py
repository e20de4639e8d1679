"""Two clusters, pythia and hume, each a node of its own, and the real `yt` command that speaks to them."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from yt import yson

from tests.e2e.running_node import RunningNode, environment, running_node
from tests.ports import free_ports

YT = str(Path(sys.executable).parent / "yt")
COMMAND_S = 60.0
WAIT_S = 20.0
# Without these, a client that is refused tries for minutes.
NO_RETRIES = "{proxy={retries={enable=%false}};dynamic_table_retries={enable=%false}}"
NO_CLIENT_RETRIES = {
    "proxy": {"retries": {"enable": False}},
    "dynamic_table_retries": {"enable": False},
    # A ping that finds the node killed would interrupt the whole test run; the commit tells as well.
    "ping_failed_mode": "pass",
}


class YtFailedError(Exception):
    """The command failed; what it said."""


class YtClusters:
    """Both clusters, by name; either can be killed and started again on its port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ports = dict(zip(("pythia", "hume"), free_ports(2), strict=True))
        self._stacks: dict[str, ExitStack] = {}
        self.nodes: dict[str, RunningNode] = {}
        self._forgotten: set[tuple[str, str]] = set()

    def start(self, name: str) -> None:
        """Start a cluster, on the data it had before."""
        peers = [(other, port) for other, port in self.ports.items() if other != name and (name, other) not in self._forgotten]
        argv = ["--data-dir", str(self._folder / name), "--yt-port", str(self.ports[name]), "--cluster-name", name]
        argv += (word for other, port in peers for word in ("--peer-cluster", f"{other}=http://127.0.0.1:{port}"))
        stack = self._stacks[name] = ExitStack()
        self.nodes[name] = stack.enter_context(running_node(self._folder / f"{name}.log", argv))

    def forget(self, name: str, other: str) -> None:
        """Start a cluster again without another among its peers."""
        self._forgotten.add((name, other))
        self.kill(name)

    def kill(self, name: str) -> None:
        """kill -9, and start again."""
        self.nodes[name].kill()
        self._stacks.pop(name).close()
        self.start(name)

    def stop(self) -> None:
        """End both, and the connections that clients have left open."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
        for stack in self._stacks.values():
            stack.close()

    def yt(self, *argv: str, stdin: bytes = b"") -> str:
        """Run `yt`; what it printed. YtFailedError with what it said if it failed."""
        aliases = "{" + ";".join(f'{name}="http://127.0.0.1:{port}"' for name, port in self.ports.items()) + "}"
        variables = {"YT_PROXY_URL_ALIASING_CONFIG": aliases, "YT_CONFIG_PATCHES": NO_RETRIES, "HOME": str(self._folder)}
        done = subprocess.run(
            [YT, *argv], input=stdin, capture_output=True, timeout=COMMAND_S, check=False, env=environment(variables)
        )
        if done.returncode != 0:
            raise YtFailedError(done.stderr.decode() + done.stdout.decode())
        return done.stdout.decode()

    def value(self, *argv: str) -> Any:
        """Run `yt` and read the value it printed."""
        return yson.loads(self.yt(*argv).encode(), always_create_attributes=False)

    def rows(self, *argv: str) -> list[dict[str, Any]]:
        """Run `yt` and read the rows it printed."""
        printed = self.yt(*argv, "--format", "<format=text>yson").encode()
        return list(yson.loads(printed, yson_type="list_fragment", always_create_attributes=False))

    def client(self, name: str) -> Any:
        """The Python client of a cluster, which does not try again."""
        import yt.wrapper

        return yt.wrapper.YtClient(proxy=f"http://127.0.0.1:{self.ports[name]}", config=NO_CLIENT_RETRIES)


@contextmanager
def yt_clusters(folder: Path, *names: str) -> Iterator[YtClusters]:
    """Clusters of these names; both if none is given."""
    clusters = YtClusters(folder)
    try:
        for name in names or ("pythia", "hume"):
            clusters.start(name)
        yield clusters
    finally:
        clusters.stop()


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that in time"
        time.sleep(0.1)
