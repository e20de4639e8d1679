"""A standalone cluster: a master and workers as processes of their own, without Penstock. Where tests run as root, isolated ones
belong to another user, who cannot read the broker's files."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyspark

from penstock.spark.java import use_java

HOME = Path(pyspark.__file__).parent
START_S = 120.0
JAVA_OPTIONS = os.environ.get("SPARK_SUBMIT_OPTS", "")  # those of the drivers
_DEPLOY = "org.apache.spark.deploy"
_NOBODY = 65534
_OTHER_USER: Mapping[str, Any] = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}


class SparkCluster:
    """The processes of one cluster, whose workers and executors can be killed."""

    def __init__(self, directory: Path, *, workers: int, cores: int, user: Mapping[str, Any]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self.address = f"spark://127.0.0.1:{port}"
        self._directory = directory
        self._cores = cores
        self._user = user
        self._master = self._start(["master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"])
        self._wait_for("I have been elected leader", 1)
        self._workers = [self._start_worker(number) for number in range(workers)]

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        # As on machines where nothing of ours is installed.
        variables = {
            "JAVA_HOME": str(use_java()),
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
            "PATH": "/usr/bin:/bin",
        }
        with self._log.open("ab") as log:
            argv = [str(HOME / "bin" / "spark-class"), f"{_DEPLOY}.{command[0]}", *command[1:]]
            return subprocess.Popen(argv, stdout=log, stderr=log, env=variables, cwd=self._directory, **self._user)

    def _start_worker(self, number: int) -> subprocess.Popen[bytes]:
        said = self._said("Successfully registered with master")
        work = str(self._directory / f"worker-{number}")
        worker = self._start(["worker.Worker", "-c", str(self._cores), "-m", "1g", "-d", work, "--webui-port", "0", self.address])
        self._wait_for("Successfully registered with master", said + 1)
        return worker

    @property
    def _log(self) -> Path:
        return self._directory / "cluster.log"

    def _said(self, text: str) -> int:
        return self._log.read_text(errors="replace").count(text) if self._log.exists() else 0

    def _wait_for(self, text: str, times: int) -> None:
        deadline = time.monotonic() + START_S
        while self._said(text) < times:
            assert time.monotonic() < deadline, self._log.read_text(errors="replace")[-3000:]
            time.sleep(0.1)

    def executors(self) -> list[int]:
        """The processes in which tasks run: they work in the workers' directories."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if not entry.name.isdigit() or not str((entry / "cwd").readlink()).startswith(str(self._directory / "worker-")):
                    continue
                if b"CoarseGrainedExecutorBackend" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
        return found

    def kill_executor(self) -> bool:
        """kill -9 of an executor, if there is one; the master starts another."""
        executors = self.executors()
        if executors:
            with suppress(ProcessLookupError):
                os.kill(executors[0], 9)
        return bool(executors)

    def kill_worker(self, number: int) -> None:
        """kill -9 of a worker and its executors, and up again."""
        self._workers[number].kill()
        self._workers[number].wait()
        self.kill_executor()
        self._workers[number] = self._start_worker(number)

    def close(self) -> None:
        """End all of it."""
        for process in (*self._workers, self._master):
            process.kill()
            process.wait()
        while self.kill_executor():
            time.sleep(0.1)


@contextmanager
def spark_cluster(*, workers: int = 2, cores: int = 1, is_isolated: bool = False) -> Iterator[SparkCluster]:
    """A cluster in a directory of its own, ended at the end."""
    user = _OTHER_USER if is_isolated else {}
    with tempfile.TemporaryDirectory(prefix="spark-cluster-", ignore_cleanup_errors=True) as directory:
        if user:
            os.chown(directory, _NOBODY, _NOBODY)
        cluster = SparkCluster(Path(directory), workers=workers, cores=cores, user=user)
        try:
            yield cluster
        finally:
            cluster.close()
