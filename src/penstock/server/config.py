"""The configuration of a node: one value per setting, from the defaults, `penstock.toml`, the environment and the command line.

Each source overrides the ones before it. A setting has one name everywhere: `kafka_port` in the file is PENSTOCK_KAFKA_PORT in
the environment and --kafka-port on the command line. An unknown or invalid setting is an error that names its source.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, NamedTuple

from penstock.server.errors import BadSettingError
from penstock.server.kinds import (
    FILE,
    FLAG,
    HOST,
    NAME,
    NUMBERS,
    PATH,
    PATHS,
    PEERS,
    PORT,
    SECONDS,
    SECRET,
    SIZE,
    URL,
    USER,
    Kind,
    choice,
    or_none,
    whole_number,
)

CONFIG_NAME: Final = "penstock.toml"
ENVIRONMENT_PREFIX: Final = "PENSTOCK_"
CONFIG_VARIABLE: Final = "PENSTOCK_CONFIG"
# Read by the commands that talk to a node; a node in the same environment must not stumble over it.
CLIENT_VARIABLES: Final = frozenset(
    {"PENSTOCK_BOOTSTRAP", "PENSTOCK_HTTP", "PENSTOCK_STREAM", "PENSTOCK_USER", "PENSTOCK_PASSWORD", "PENSTOCK_TLS_CA"}
)

NODE_ID_MAX = (1 << 31) - 1


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
    host: str = "127.0.0.1"
    advertised_host: str | None = None
    kafka_port: int | None = 9092
    kafka_tls_port: int | None = None
    http_port: int | None = 8080
    yt_port: int | None = None
    cluster_name: str = "penstock"
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
    log_level: str = "info"
    log_format: str = "text"
    otel_endpoint: str | None = None


class Setting(NamedTuple):
    """One setting: its key in the file, the kind of its values, its default as documented, and its description."""

    key: str
    kind: Kind
    default: str
    doc: str

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return ENVIRONMENT_PREFIX + self.key.upper()

    @property
    def is_list(self) -> bool:
        """Whether its option is given once for each item."""
        return self.kind in (PATHS, PEERS)

    @property
    def is_secret(self) -> bool:
        """Whether it has no option: what is on a command line, everyone on the machine can read."""
        return self.kind is SECRET

    @property
    def metavar(self) -> str:
        """What stands for its value in a usage line."""
        return self.kind.metavar

    @property
    def option(self) -> str:
        """Its name on the command line."""
        singular = {PATHS: "disk", PEERS: "peer-cluster"}.get(self.kind, self.key)
        return "--" + singular.replace("_", "-")


SETTINGS: Final = {
    setting.key: setting
    for setting in (
        Setting("data_dir", PATH, "./penstock-data", "the node's identity and, unless disks are given, all data"),
        Setting(
            "erasure",
            choice("none", "mirror-3", "block-4-2", "mirror-3-dc"),
            "that of the data directory; none for a new one",
            "how blobs are stored on disks: none is one copy on 1 disk, mirror-3 survives the loss of any 1 of 3 disks, "
            "block-4-2 that of any 2 of 8, mirror-3-dc that of one row of 3 and one more of 9. Fixed when the data directory "
            "is created",
        ),
        Setting(
            "disks",
            PATHS,
            "those of the data directory; inside it for a new one",
            "the directories of the disks, in order: 1, 3, 8 or 9, depending on erasure. Each should fail by itself",
        ),
        Setting(
            "durability",
            choice("fsync", "os"),
            "fsync",
            "when a write is acknowledged: fsync after it is on disk, os once it is in the page cache, as Kafka "
            "does (a process crash loses nothing, a power cut may)",
        ),
        Setting(
            "disk_timeout_s",
            SECONDS,
            "15",
            "the timeout of a disk operation; a disk that exceeds it counts as failed until it answers again. "
            "Keep it below the request timeout of clients (30 s in Kafka's)",
        ),
        Setting(
            "accept_data_loss",
            FLAG,
            "false",
            "start although files of the only copy of the data are missing or truncated: their content is lost "
            "permanently, and the log names it. Without it such a node does not start, so that the files can be "
            "restored. Set it for one start only",
        ),
        Setting(
            "node_id",
            whole_number(0, NODE_ID_MAX),
            "that of the data directory; 1 for a new one",
            "the id of this node, the broker id of Kafka clients",
        ),
        Setting("host", HOST, "127.0.0.1", "the address to listen on; 0.0.0.0 for all interfaces"),
        Setting(
            "advertised_host",
            HOST,
            "the host; this machine's name if the host is 0.0.0.0 or ::",
            "the host that clients connect to",
        ),
        Setting("kafka_port", PORT, "9092", "the port for Kafka clients; 0 picks a free one, none turns the listener off"),
        Setting(
            "kafka_tls_port",
            PORT,
            "none",
            "a second port for Kafka clients, with TLS, while kafka_port stays plaintext; needs tls_cert",
        ),
        Setting(
            "http_port",
            PORT,
            "8080",
            "the port for the web console, the admin API, health and metrics; 0 picks a free one, none turns the "
            "listener off. With sasl it requires a user and password, with tls_cert it uses TLS",
        ),
        Setting(
            "yt_port",
            PORT,
            "none",
            "the port for YT clients (HTTP proxy); 0 picks a free one. Needs the extra: pip install 'penstock[yt]'",
        ),
        Setting("cluster_name", NAME, "penstock", "the name of this cluster in paths of YT clients: <cluster=name>//path"),
        Setting("peer_clusters", PEERS, "none", "other clusters that YT paths may name, and the URLs of their YT listeners"),
        Setting(
            "peer_token_file",
            FILE,
            "none",
            "a file with the token (user:password) this cluster authenticates with at peer clusters; without it, "
            "forwarded requests carry the client's token",
        ),
        Setting(
            "ydb_port",
            PORT,
            "none",
            "the port for YDB topic clients, usually 2136; 0 picks a free one, none turns the listener off. Needs "
            "the extra: pip install 'penstock[ydb]'",
        ),
        Setting(
            "stream_port",
            PORT,
            "none",
            "the port for stream clients (gRPC), usually 50051; 0 picks a free one, none turns streams off. Needs "
            "the extra: pip install 'penstock[stream]'",
        ),
        Setting("stream_http_port", PORT, "none", "the port for streams over HTTP; 0 picks a free one. Needs the same extra"),
        Setting(
            "stream_ttl_s",
            or_none(SECONDS),
            "none",
            "retention, in seconds, of subjects created by stream clients; none is no limit. retention.ms of the "
            "topic overrides it for one subject",
        ),
        Setting(
            "stream_inline_bytes",
            SIZE,
            "10MiB",
            "the largest payload delivered inline to a stream client, at most 60MiB; a larger one is downloaded. "
            "A client lowers it with the call metadata penstock-inline-bytes",
        ),
        Setting(
            "stream_metadata",
            or_none(URL),
            "none",
            "where stream metadata is stored: none for this node, tarantool://user:password@host:port for a "
            "Tarantool prepared with `penstock stream init-tarantool`. Set a URL with a password in the "
            "environment or the file",
        ),
        Setting(
            "stream_payloads",
            or_none(URL),
            "none",
            "where payloads are stored if stream_metadata is Tarantool: s3://bucket/prefix, with credentials and "
            "endpoint from the AWS_… environment variables, or file:///directory",
        ),
        Setting("auto_create_topics", FLAG, "true", "whether a topic is created when a client first uses it"),
        Setting("default_partitions", whole_number(1, 100_000), "1", "the number of partitions of a new topic, unless given"),
        Setting("topic_partitions_max", whole_number(1, 1_000_000), "20000", "the maximum number of partitions of a topic"),
        Setting(
            "partitions_max",
            whole_number(1, 10_000_000),
            "50000",
            "the maximum number of partitions of all topics; each takes about 6 KB of memory and 0.3 ms at startup",
        ),
        Setting("groups_max", whole_number(1, 10_000_000), "50000", "the maximum number of consumer groups, active or not"),
        Setting("yt_nodes_max", whole_number(1, 10_000_000), "100000", "the maximum number of Cypress nodes"),
        Setting("yt_transactions_max", whole_number(1, 1_000_000), "10000", "the maximum number of open YT transactions"),
        Setting("cache_bytes", SIZE, "256MiB", "memory for the cache of recently written and read messages"),
        Setting("retention_interval_s", SECONDS, "30", "the interval, in seconds, between retention runs"),
        Setting(
            "give_up_tablets",
            or_none(NUMBERS),
            "none",
            "ids of damaged system tablets to start without, losing their lost records. Set it for one start only",
        ),
        Setting("compaction_interval_s", SECONDS, "15", "the interval, in seconds, between checks for partitions to compact"),
        Setting(
            "compaction_map_bytes",
            SIZE,
            "64MiB",
            "memory for the keys of a partition during compaction, 32 bytes each; with more keys it takes several passes",
        ),
        Setting("produce_bytes_per_s", or_none(SIZE), "none", "the produce quota per client, per second; none is no limit"),
        Setting("fetch_bytes_per_s", or_none(SIZE), "none", "the fetch quota per client, per second; none is no limit"),
        Setting(
            "group_initial_rebalance_delay_ms",
            whole_number(0, 60_000),
            "100",
            "how long, in milliseconds, a new consumer group waits for more members before the first rebalance",
        ),
        Setting(
            "group_members_max",
            or_none(whole_number(1, 1_000_000)),
            "none",
            "the maximum number of members of a group; none is no limit for classic groups, 10000 for KIP-848 groups",
        ),
        Setting(
            "group_session_timeout_min_ms",
            whole_number(1, 1_000_000_000),
            "1000",
            "the smallest session timeout, in milliseconds, a member of a classic group may request",
        ),
        Setting(
            "group_session_timeout_max_ms",
            whole_number(1, 1_000_000_000),
            "1800000",
            "the largest session timeout, in milliseconds, a member of a classic group may request",
        ),
        Setting(
            "offsets_retention_minutes",
            whole_number(1, 100 * 366 * 24 * 60),
            "10080",
            "how long, in minutes, the committed offsets of a group are kept after its last member left; 10080 is a week",
        ),
        Setting(
            "consumer_session_timeout_s",
            SECONDS,
            "45",
            "the session timeout, in seconds, of members of KIP-848 groups",
        ),
        Setting(
            "consumer_heartbeat_interval_s",
            SECONDS,
            "5",
            "the heartbeat interval, in seconds, of members of KIP-848 groups; a rebalance takes about as long to reach them",
        ),
        Setting("drain_timeout_s", SECONDS, "10", "how long, in seconds, a shutdown waits for requests in flight"),
        Setting(
            "sasl",
            FLAG,
            "false",
            "whether clients must authenticate, with SASL PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. Also enforces "
            "access rules (ACLs). Needs admin_password or admin_password_file",
        ),
        Setting("admin_user", USER, "admin", "the superuser, who is allowed everything and grants access to others"),
        Setting(
            "admin_password",
            SECRET,
            "none",
            "the password of the superuser. It has no command-line option, since others can read a command line: "
            "use the environment or the file",
        ),
        Setting("admin_password_file", FILE, "none", "a file that contains admin_password"),
        Setting(
            "allow_without_rule",
            FLAG,
            "false",
            "whether an operation that no access rule covers is allowed; otherwise only the superuser may do it. "
            "Without sasl, it enforces access rules for User:ANONYMOUS, which is every client, and which may also "
            "change them",
        ),
        Setting(
            "tls_cert",
            FILE,
            "none",
            "a PEM file with the certificate chain of this node; with it the Kafka listener uses TLS only, unless "
            "kafka_tls_port opens a second listener for TLS",
        ),
        Setting("tls_key", FILE, "none", "a PEM file with the private key of tls_cert"),
        Setting(
            "log_level",
            choice("debug", "info", "warning", "error"),
            "info",
            "the level of log messages, which go to standard error",
        ),
        Setting(
            "log_format",
            choice("text", "json"),
            "text",
            "the format of log messages: text lines, or one JSON object per line",
        ),
        Setting(
            "otel_endpoint",
            or_none(URL),
            "none, unless OTEL_EXPORTER_OTLP_ENDPOINT is set",
            "the OTLP endpoint for traces: http://host:4318, https://…, or grpc://host:4317. The other OTEL_… "
            "variables apply too. Needs the extra: pip install 'penstock[otel]'",
        ),
    )
}

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
        return tuple(base / path for path in value)
    return value


def _suggestion(name: str, known: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(known))}"
