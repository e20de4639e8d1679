"""The configuration of each worker: its own directory, disk and ports, and its share of what they have in common. No I/O.

DATA/                           the directory of worker 1, as it is without workers
DATA/workers/2/                 the directory of worker 2, of the same form
DATA/run/coordination.sock      where the supervisor serves coordination
DATA/run/worker2.sock           where worker 2 serves the others
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from penstock.server.config import NodeConfig
from penstock.server.errors import BadSettingError

COORDINATION_SOCKET: Final = "coordination.sock"
PORT_MAX: Final = 65535
OF_EACH_WORKER: Final = ("kafka_port", "kafka_tls_port", "http_port")
OF_THE_FIRST: Final = ("schema_registry_port", "yt_port", "ydb_port", "stream_port", "stream_http_port")


def worker_configs(config: NodeConfig) -> list[NodeConfig]:
    """The configuration of every worker, in order. BadSettingError if the settings do not allow so many. Node ids follow from
    that of worker 1, which only its directory may know."""
    count = config.workers
    if config.erasure not in (None, "none"):
        raise BadSettingError(f"workers is {count} and erasure {config.erasure}; workers store one copy: leave erasure out")
    if config.disks is not None and len(config.disks) != count:
        raise BadSettingError(f"workers is {count}, but {len(config.disks)} disks are named; name one for each, or none")
    configs = [_worker_config(config, number) for number in range(1, count + 1)]
    _check_ports(configs)
    return configs


def socket_directory(data_dir: Path) -> Path:
    """Where the sockets of workers are."""
    return data_dir.absolute() / "run"


def worker_name(number: int) -> str:
    """The name of a worker as a node of the cluster."""
    return f"worker{number}"


def with_free_ports(configs: Sequence[NodeConfig], free_ports: Callable[[int], Sequence[int]]) -> list[NodeConfig]:
    """Replace every port 0 by a free one: workers keep their ports when they are restarted, and tell others of them."""
    wanted = [(at, key) for at, config in enumerate(configs) for key in _port_keys() if getattr(config, key) == 0]
    chosen = list(configs)
    for (at, key), port in zip(wanted, free_ports(len(wanted)), strict=True):
        chosen[at] = replace(chosen[at], **{key: port})  # type: ignore[arg-type]
    return chosen


def _worker_config(config: NodeConfig, number: int) -> NodeConfig:
    disks = None if config.disks is None else (config.disks[number - 1],)
    shared = replace(config, disks=disks, cache_bytes=max(1, config.cache_bytes // config.workers))
    if number == 1:
        return shared
    ports: dict[str, int | None] = dict.fromkeys(OF_THE_FIRST)
    for key in OF_EACH_WORKER:
        first = getattr(config, key)
        ports[key] = first + number - 1 if first else first
    data_dir = config.data_dir / "workers" / str(number)
    return replace(shared, data_dir=data_dir, erasure="none", node_id=None, **ports)  # type: ignore[arg-type]


def _check_ports(configs: Sequence[NodeConfig]) -> None:
    used: dict[int, str] = {}
    for number, config in enumerate(configs, 1):
        for key in _port_keys():
            port = getattr(config, key)
            if not port:
                continue
            if port > PORT_MAX:
                raise BadSettingError(f"{key} of worker {number} would be {port}; choose a lower {key}")
            if port in used:
                raise BadSettingError(f"port {port} is {used[port]} and {key} of worker {number}; choose them further apart")
            used[port] = f"{key} of worker {number}"


def _port_keys() -> tuple[str, ...]:
    return (*OF_EACH_WORKER, *OF_THE_FIRST)
