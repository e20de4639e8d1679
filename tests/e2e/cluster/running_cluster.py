"""A cluster of nodes in processes of their own, with an etcd."""

from __future__ import annotations

import io
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from penstock.cli.main import main
from tests.e2e.cluster.machines import Machines
from tests.e2e.coordination.etcd_process import HERE, EtcdCluster, Host, running_etcd
from tests.e2e.running_node import PENSTOCK, RunningNode, penstock, running_node
from tests.ports import free_ports

WAIT_S = 60.0
NAME = "tested"
TLS = Path(__file__).parents[1] / "interconnect" / "tls"


def until(what: str | Callable[[], str], ready: Callable[[], Any], timeout_s: float = WAIT_S) -> Any:
    """Wait until something is so; what it gave."""
    deadline = time.monotonic() + timeout_s
    while not (found := ready()):
        assert time.monotonic() < deadline, f"{what if isinstance(what, str) else what()}: not within {timeout_s:g} s"
        time.sleep(0.05)
    return found


class RunningCluster:
    """Nodes by number, each with ports and a directory of its own, which it keeps when it is started again."""

    def __init__(
        self,
        directory: Path,
        etcd: EtcdCluster,
        stack: ExitStack,
        machines: Machines | None = None,
        options: Mapping[int, Sequence[str]] | None = None,
    ) -> None:
        self.directory = directory
        self.etcd = etcd
        self.etcd_options = ("--etcd", ",".join(etcd.urls), "--cluster-name", NAME)
        self.nodes: dict[int, RunningNode] = {}
        self._stack = stack
        self._machines = machines
        self._options = options or {}  # more of them, by node
        self._ports: dict[int, list[int]] = {}

    def options(self, number: int) -> list[str]:
        """The options of a node, ports included."""
        kafka, http, interconnect = self._ports.setdefault(number, free_ports(3))
        ports = {"kafka": kafka, "http": http, "interconnect": interconnect}
        named = [word for name, port in ports.items() for word in (f"--{name}-port", str(port))]
        place = ["--node-name", f"n{number}", "--data-dir", str(self.directory / f"n{number}"), "--host", self.host(number)]
        return [*self.etcd_options, *place, *named, *self._tls_options(), *self._options.get(number, ())]

    def _tls_options(self) -> list[str]:
        """Between machines nodes show certificates."""
        if self._machines is None:
            return []
        files = {"ca": "ca_a.pem", "cert": "node_a.pem", "key": "node_a.key.pem"}
        return [word for kind, file in files.items() for word in (f"--interconnect-{kind}", str(TLS / file))]

    def host(self, number: int) -> str:
        """The address of a node."""
        return "127.0.0.1" if self._machines is None else self._machines.address(number)

    def start(self, number: int, *more: str) -> RunningNode:
        """Start a node, or start it again."""
        argv = [*self.options(number), *more]
        program = PENSTOCK if self._machines is None else (*self._machines.run_by(number), *PENSTOCK)
        node = self._stack.enter_context(running_node(self.log(number), argv, program))
        self.nodes[number] = node
        return node

    def start_all(self, numbers: Sequence[int]) -> None:
        """Start nodes, three at the same time: more of them take longer to start than a node may on few cores."""
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(self.start, numbers))

    def log(self, number: int) -> Path:
        """The log of a node."""
        return self.directory / f"n{number}.log"

    def move(self, number: int) -> None:
        """Give a node other ports for its next start."""
        self._ports[number] = free_ports(3)

    def kill(self, number: int) -> None:
        """kill -9."""
        self.nodes.pop(number).kill()

    def kafka_port(self, number: int) -> int:
        """The port of a node for Kafka clients."""
        return self._ports[number][0]

    def http_port(self, number: int) -> int:
        """The port of a node for HTTP."""
        return self._ports[number][1]

    def readiness(self, number: int) -> Mapping[str, Any]:
        """What /readyz of a node shows; nothing if it does not answer."""
        has_tls = "--tls-cert" in self._options.get(number, ())
        url = f"{self.url(number)}/readyz"
        context = ssl._create_unverified_context() if has_tls else None  # the certificate vouches for itself
        try:
            with urllib.request.urlopen(url, timeout=2.0, context=context) as response:
                return dict(json.loads(response.read()))
        except urllib.error.HTTPError as error:
            return dict(json.loads(error.read()))
        except OSError:
            return {}

    def metrics(self, number: int) -> str:
        """What /metrics of a node shows."""
        with urllib.request.urlopen(f"{self.url(number)}/metrics", timeout=10.0) as response:
            return str(response.read().decode())

    def url(self, number: int) -> str:
        """The HTTP listener of a node."""
        has_tls = "--tls-cert" in self._options.get(number, ())
        return f"{'https' if has_tls else 'http'}://{self.host(number)}:{self._ports[number][1]}"

    def api(self, number: int, path: str, body: object = None, method: str = "GET") -> Any:
        """What the HTTP API answers on a node, which may not be the one that serves it."""
        url = f"{self.url(number)}/api/v1{path}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=WAIT_S) as response:
            return json.loads(response.read())

    def active(self, timeout_s: float = WAIT_S) -> int:
        """Wait until one node runs the broker; its number."""

        def look() -> int:
            for number in self.nodes:
                shown = self.readiness(number)
                if shown.get("role") == "active" and shown["phase"] == "serving":
                    return number
            return 0

        return int(until("no node is active", look, timeout_s))

    def wait_ready(self, number: int, timeout_s: float = WAIT_S) -> None:
        """Wait until a node could be done without another: its VDisks are in step."""
        shown: Mapping[str, Any] = {}

        def look() -> bool:
            nonlocal shown
            shown = self.readiness(number)
            return bool(shown.get("status") == "ready")

        until(lambda: f"node {number} is not ready: {shown}", look, timeout_s)

    @property
    def bootstrap(self) -> str:
        """The Kafka listeners of all nodes."""
        return ",".join(f"{self.host(number)}:{ports[0]}" for number, ports in self._ports.items())

    def ok(self, *argv: str) -> str:
        """Run a command of an operator that must succeed; what it printed."""
        code, printed, errors = self.run(*argv)
        assert code == 0, (argv, printed, errors)
        return printed

    def run(self, *argv: str) -> tuple[int, str, str]:
        """Run a command of an operator in this process; its exit code and what it printed."""
        printed, errors = io.StringIO(), io.StringIO()
        with redirect_stdout(printed), redirect_stderr(errors):
            code = main([*argv, "--etcd", ",".join(self.etcd.urls), "--name", NAME])
        return code, printed.getvalue(), errors.getvalue()

    def use(self, *argv: str) -> str:
        """Run a command of a Kafka client against the node that serves; what it printed."""
        active = self.active()
        kafka = f"{self.host(active)}:{self._ports[active][0]}"
        done = penstock(*argv, variables={"PENSTOCK_BOOTSTRAP": kafka})
        assert done.returncode == 0, (argv, done.stdout, done.stderr)
        return done.stdout.decode()


@contextmanager
def running_cluster(
    directory: Path,
    nodes: int = 3,
    kind: str = "mirror-3",
    machines: Machines | None = None,
    *,
    etcd_members: int = 1,
    options: Mapping[int, Sequence[str]] | None = None,
) -> Iterator[RunningCluster]:
    """A cluster that serves, each node on a machine of its own if there are `machines`, and etcd on the last of them."""
    with ExitStack() as stack:
        host = HERE if machines is None else Host(machines.address(machines.count), machines.run_by(machines.count))
        etcd = stack.enter_context(running_etcd(directory, etcd_members, host=host))
        cluster = RunningCluster(directory, etcd, stack, machines, options)
        cluster.ok("cluster", "init", "--kind", kind)
        cluster.start_all(range(1, nodes + 1))
        cluster.active(WAIT_S * max(1, nodes // 4))
        yield cluster
