"""The configuration of a node: one value per setting, from the defaults, `penstock.toml`, the environment and the command line.

Each source overrides the ones before it. A setting has one name everywhere: `kafka_port` in the file is PENSTOCK_KAFKA_PORT in
the environment and --kafka-port on the command line. An unknown or invalid setting is an error that names its source.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from penstock.server.errors import BadSettingError
from penstock.server.setting import ENVIRONMENT_PREFIX, Setting
from penstock.server.settings import SETTINGS

CONFIG_NAME: Final = "penstock.toml"
CONFIG_VARIABLE: Final = "PENSTOCK_CONFIG"
# Read by the commands that talk to a node; a node in the same environment must not stumble over it.
CLIENT_VARIABLES: Final = frozenset(
    {
        "PENSTOCK_BOOTSTRAP",
        "PENSTOCK_HTTP",
        "PENSTOCK_STREAM",
        "PENSTOCK_USER",
        "PENSTOCK_PASSWORD",
        "PENSTOCK_TLS_CA",
        "PENSTOCK_PROFILE",
    }
)


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """All settings of a node. None for `erasure`, `disks` and `node_id` means: as the data directory was created."""

    data_dir: Path = Path("penstock-data")
    erasure: str | None = None
    disks: tuple[Path, ...] | None = None
    durability: str = "fsync"
    disk_timeout_s: float = 15.0
    accept_data_loss: bool = False
    node_id: int | None = None
    workers: int = 1
    host: str = "127.0.0.1"
    advertised_host: str | None = None
    kafka_port: int | None = 9092
    kafka_tls_port: int | None = None
    http_port: int | None = 8080
    console_peers: Mapping[str, str] | None = None
    schema_registry_port: int | None = None
    yt_port: int | None = None
    cluster_name: str = "penstock"
    etcd: tuple[str, ...] | None = None
    etcd_ca: Path | None = None
    etcd_cert: Path | None = None
    etcd_key: Path | None = None
    etcd_user: str | None = None
    etcd_password: str | None = field(default=None, repr=False)
    etcd_password_file: Path | None = None
    node_name: str | None = None
    replaces_node: bool = False
    interconnect_port: int | None = 9190
    interconnect_ca: Path | None = None
    interconnect_cert: Path | None = None
    interconnect_key: Path | None = None
    rack: str | None = None
    datacenter: str | None = None
    peer_clusters: Mapping[str, str] | None = None
    peer_token_file: Path | None = None
    ydb_port: int | None = None
    stream_port: int | None = None
    stream_http_port: int | None = None
    stream_ttl_s: float | None = None
    stream_inline_bytes: int = 10 << 20
    stream_metadata: str | None = None
    stream_payloads: str | None = None
    auto_create_topics: bool = True
    default_partitions: int = 1
    topic_partitions_max: int = 20_000
    partitions_max: int = 50_000
    groups_max: int = 50_000
    yt_nodes_max: int = 100_000
    yt_transactions_max: int = 10_000
    cache_bytes: int = 256 << 20
    retention_interval_s: float = 30.0
    give_up_tablets: tuple[int, ...] | None = None
    compaction_interval_s: float = 15.0
    compaction_map_bytes: int = 64 << 20
    produce_bytes_per_s: int | None = None
    fetch_bytes_per_s: int | None = None
    group_initial_rebalance_delay_ms: int = 100
    group_members_max: int | None = None
    group_session_timeout_min_ms: int = 1000
    group_session_timeout_max_ms: int = 1_800_000
    offsets_retention_minutes: int = 7 * 24 * 60
    consumer_session_timeout_s: float = 45.0
    consumer_heartbeat_interval_s: float = 5.0
    drain_timeout_s: float = 10.0
    sasl: bool = False
    admin_user: str = "admin"
    admin_password: str | None = field(default=None, repr=False)
    admin_password_file: Path | None = None
    allow_without_rule: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None
    pipelines: str = "auto"
    log_level: str = "info"
    log_format: str = "text"
    otel_endpoint: str | None = None


_BY_VARIABLE = {setting.variable: setting for setting in SETTINGS.values()}
assert [field.name for field in fields(NodeConfig)] == list(SETTINGS)


def load_config(options: Mapping[str, object], environ: Mapping[str, str], config_file: Path | None = None) -> NodeConfig:
    """The configuration from all sources; `options` are those given on the command line, by key."""
    values = _from_file(_config_file(environ, config_file))
    values |= _from_environment(environ)
    for key, raw in options.items():
        setting = SETTINGS[key]
        values[key] = _read(setting, raw, f"option {setting.option}")
    config = NodeConfig(**values)
    if config.consumer_heartbeat_interval_s >= config.consumer_session_timeout_s:
        raise BadSettingError(
            f"consumer_heartbeat_interval_s is {config.consumer_heartbeat_interval_s}; it must be less than "
            f"consumer_session_timeout_s, which is {config.consumer_session_timeout_s}"
        )
    if config.group_session_timeout_min_ms > config.group_session_timeout_max_ms:
        raise BadSettingError(
            f"group_session_timeout_min_ms is {config.group_session_timeout_min_ms}; it must not be more than "
            f"group_session_timeout_max_ms, which is {config.group_session_timeout_max_ms}"
        )
    _check_security(config)
    _check_cluster(config)
    return config


def _check_security(config: NodeConfig) -> None:
    """Raises BadSettingError if the security settings are incomplete, so that no protection is only assumed."""
    passwords = [config.admin_password is not None, config.admin_password_file is not None]
    if all(passwords):
        raise BadSettingError("admin_password and admin_password_file are both set; give the password once")
    if config.sasl and not any(passwords):
        raise BadSettingError("sasl is true, but the administrator has no password; set admin_password or admin_password_file")
    if any(passwords) and not config.sasl:
        raise BadSettingError("the administrator has a password, but sasl is false, so it is never checked; set sasl to true")
    if config.kafka_tls_port is not None and config.tls_cert is None:
        raise BadSettingError("kafka_tls_port is set, but there is no certificate for TLS; set tls_cert and tls_key")
    if (config.tls_cert is None) != (config.tls_key is None):
        raise BadSettingError("TLS needs both tls_cert and tls_key; one of them is missing")


def _check_cluster(config: NodeConfig) -> None:
    """Raises BadSettingError if the settings of a cluster are incomplete, or contradict those of a single node."""
    if config.etcd is None:
        return
    files = (config.interconnect_ca, config.interconnect_cert, config.interconnect_key)
    if any(files) and not all(files):
        raise BadSettingError(
            "TLS between nodes needs all of interconnect_ca, interconnect_cert and interconnect_key; one of them is missing"
        )
    if config.interconnect_port is None:
        raise BadSettingError("interconnect_port is none; a node of a cluster needs a port for the other nodes")
    for key, value, instead in (
        ("erasure", config.erasure, "`penstock cluster init --kind` chooses it for the whole cluster"),
        ("node_id", config.node_id, "the cluster gives each node its id; name it by node_name"),
        ("workers", None if config.workers == 1 else config.workers, "start more nodes, each with a node_name of its own"),
    ):
        if value is not None:
            raise BadSettingError(f"{key} cannot be set together with etcd: {instead}")
    if config.etcd_password is not None and config.etcd_password_file is not None:
        raise BadSettingError("etcd_password and etcd_password_file are both set; give the password once")


def _config_file(environ: Mapping[str, str], named: Path | None) -> Path | None:
    if named is None and CONFIG_VARIABLE in environ:
        named = Path(environ[CONFIG_VARIABLE])
    if named is not None:
        return named
    usual = Path(CONFIG_NAME)
    return usual if usual.exists() else None


def _from_file(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise BadSettingError(f"cannot read the configuration file {path}: {error.strerror}; check the path") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSettingError(f"{path} is not TOML: {error}; see https://toml.io for how it is written") from error
    values: dict[str, Any] = {}
    for key, raw in content.items():
        setting = SETTINGS.get(key)
        if setting is None:
            raise BadSettingError(f"{path}: unknown key {key!r}; {_suggestion(key, list(SETTINGS))}")
        values[key] = _below(path.parent, _read(setting, raw, str(path)))
    return values


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in sorted(environ):
        if not name.startswith(ENVIRONMENT_PREFIX) or name == CONFIG_VARIABLE or name in CLIENT_VARIABLES:
            continue
        setting = _BY_VARIABLE.get(name)
        if setting is None:
            raise BadSettingError(f"unknown environment variable {name}; {_suggestion(name, list(_BY_VARIABLE))}")
        values[setting.key] = _read(setting, environ[name], f"environment variable {name}")
    return values


def _read(setting: Setting, raw: object, source: str) -> object:
    try:
        return setting.kind.read(raw)
    except ValueError:
        shown_value = "not allowed" if setting.is_secret else repr(raw)
        raise BadSettingError(f"{source}: {setting.key} is {shown_value}; it must be {setting.kind.allowed}") from None


def _below(base: Path, value: object) -> object:
    """A path in a file is relative to that file, wherever the node is started from."""
    if isinstance(value, Path):
        return base / value
    if isinstance(value, tuple):
        return tuple(base / item if isinstance(item, Path) else item for item in value)
    return value


def _suggestion(name: str, known: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(known))}"
