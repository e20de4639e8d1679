"""The configuration of a node: one value per setting, from the defaults, `penstock.toml`, the environment and the command line.

Each source overrides the ones before it. A setting has one name everywhere: `kafka_port` in the file is PENSTOCK_KAFKA_PORT in
the environment and --kafka-port on the command line. What is not known, or not allowed, is an error that says where it stands.
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
    """Everything a node is told. Of `erasure`, `disks` and `node_id`, None means: as the data directory was made."""

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
    """One setting: its key in the file, what it takes, its default as told to a person, and what it is for."""

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
        Setting("data_dir", PATH, "./penstock-data", "where the node keeps what it is and, unless disks are named, all its data"),
        Setting(
            "erasure",
            choice("none", "block-4-2", "mirror-3-dc"),
            "as the data directory was made; none for a new one",
            "how blobs are spread over disks: none is one copy on 1 disk, block-4-2 survives the loss of any 2 of 8, mirror-3-dc "
            "that of a row of 3 and one more of 9. Chosen once, when the data directory is made",
        ),
        Setting(
            "disks",
            PATHS,
            "as the data directory was made; below the data directory for a new one",
            "the directories of the disks, in order: 1, 8 or 9 as the erasure asks. No failure should take two of them",
        ),
        Setting(
            "durability",
            choice("fsync", "os"),
            "fsync",
            "when a write is acknowledged: fsync after it is on the disks, os once the operating system has it, as Kafka does "
            "(a crash of the process loses nothing, a power cut may)",
        ),
        Setting(
            "disk_timeout_s",
            SECONDS,
            "15",
            "how long a call to a disk may take; one that hangs for longer counts as failed until it answers again. Below the "
            "time that clients wait for an answer (30 s in Kafka's)",
        ),
        Setting(
            "accept_data_loss",
            FLAG,
            "false",
            "start although files of the only copy of data are missing or cut: what was in them is lost for good, and the log "
            "names it. Without it such a node does not start, so that the files can be restored. For one start only",
        ),
        Setting(
            "node_id",
            whole_number(0, NODE_ID_MAX),
            "as the data directory was made; 1 for a new one",
            "the number of this node, which Kafka clients see as the broker id",
        ),
        Setting("host", HOST, "127.0.0.1", "the address to listen on; 0.0.0.0 for all of them"),
        Setting(
            "advertised_host",
            HOST,
            "the host; this machine's name if the host is 0.0.0.0 or ::",
            "the host that clients are told to connect to",
        ),
        Setting("kafka_port", PORT, "9092", "the port for Kafka clients; 0 picks a free one, none turns the listener off"),
        Setting(
            "kafka_tls_port",
            PORT,
            "none",
            "a second port for Kafka clients, which speaks TLS while kafka_port stays without; it needs tls_cert",
        ),
        Setting(
            "http_port",
            PORT,
            "8080",
            "the port for the web console, the admin API, health and metrics; 0 picks a free one, none turns the listener off. "
            "With sasl it asks for user and password, with tls_cert it speaks TLS",
        ),
        Setting(
            "yt_port",
            PORT,
            "none",
            "the port for YT's clients, as an HTTP proxy; 0 picks a free one. It needs the package with its yt extra",
        ),
        Setting(
            "cluster_name", NAME, "penstock", "the name of this cluster, as paths of YT's clients use it: <cluster=name>//path"
        ),
        Setting("peer_clusters", PEERS, "none", "other clusters that such paths may name, and where their YT listeners are"),
        Setting(
            "peer_token_file",
            FILE,
            "none",
            "a file with the token, user:password, by which this cluster makes itself known to those; without it, requests that "
            "are passed on carry the token of whoever sent them",
        ),
        Setting(
            "ydb_port",
            PORT,
            "none",
            "the port for clients of YDB topics, usually 2136; 0 picks a free one, none turns the listener off. It needs the "
            "extra: pip install 'penstock[ydb]'",
        ),
        Setting(
            "stream_port",
            PORT,
            "none",
            "the port for stream clients (gRPC), usually 50051; 0 picks a free one, none turns streams off. It needs the extra: "
            "pip install 'penstock[stream]'",
        ),
        Setting(
            "stream_http_port", PORT, "none", "the port for streams over plain HTTP; 0 picks a free one. It needs that extra too"
        ),
        Setting(
            "stream_ttl_s",
            or_none(SECONDS),
            "none",
            "how long, in seconds, messages of a subject that stream clients make are kept; none for ever. Each subject can be "
            "given its own, as retention.ms of its topic",
        ),
        Setting(
            "stream_inline_bytes",
            SIZE,
            "10MiB",
            "how much data comes with a message to a stream client, at most 60MiB; more is downloaded. A client that can receive "
            "less says so with its calls, by penstock-inline-bytes",
        ),
        Setting(
            "stream_metadata",
            or_none(URL),
            "none",
            "where metadata of streams is kept: none for this node itself, tarantool://user:password@host:port for a Tarantool "
            "that `penstock stream init-tarantool` was run on. With a password, set it in the environment or the file",
        ),
        Setting(
            "stream_payloads",
            or_none(URL),
            "none",
            "where payloads are kept if their metadata is in Tarantool: s3://bucket/prefix, with credentials and endpoint from "
            "the AWS_… variables of the environment, or file:///directory",
        ),
        Setting("auto_create_topics", FLAG, "true", "whether a topic that a client names is made when it is not there"),
        Setting(
            "default_partitions", whole_number(1, 100_000), "1", "how many partitions a topic gets if its maker says nothing"
        ),
        Setting("topic_partitions_max", whole_number(1, 1_000_000), "20000", "how many partitions a topic may have"),
        Setting(
            "partitions_max",
            whole_number(1, 10_000_000),
            "50000",
            "how many partitions all topics may have; each takes about 6 KB of memory and 0.3 ms of a start",
        ),
        Setting("groups_max", whole_number(1, 10_000_000), "50000", "how many groups of consumers there may be, used or not"),
        Setting("yt_nodes_max", whole_number(1, 10_000_000), "100000", "how many nodes YT clients may make"),
        Setting("yt_transactions_max", whole_number(1, 1_000_000), "10000", "how many transactions of YT clients may be open"),
        Setting("cache_bytes", SIZE, "256MiB", "memory for messages that were written or read of late"),
        Setting("retention_interval_s", SECONDS, "30", "how often, in seconds, old messages are looked for"),
        Setting(
            "give_up_tablets",
            or_none(NUMBERS),
            "none",
            "for one start: system tablets that are damaged, by number, to go on without what is lost of them",
        ),
        Setting("compaction_interval_s", SECONDS, "15", "how often, in seconds, compacted topics are looked over"),
        Setting(
            "compaction_map_bytes",
            SIZE,
            "64MiB",
            "memory for the keys of a partition while it is compacted, 32 bytes each; if there are more keys it is done in parts",
        ),
        Setting("produce_bytes_per_s", or_none(SIZE), "none", "what one client may write per second; none is without limit"),
        Setting("fetch_bytes_per_s", or_none(SIZE), "none", "what one client may read per second; none is without limit"),
        Setting(
            "group_initial_rebalance_delay_ms",
            whole_number(0, 60_000),
            "100",
            "how long, in milliseconds, a new consumer group waits after each member for another, so that those who start "
            "together divide the partitions once",
        ),
        Setting(
            "group_members_max",
            or_none(whole_number(1, 1_000_000)),
            "none",
            "how many members a group may have, of either protocol; none is without limit, but 10000 for the newer one (KIP-848)",
        ),
        Setting(
            "group_session_timeout_min_ms",
            whole_number(1, 1_000_000_000),
            "1000",
            "the shortest session timeout, in milliseconds, that a member of a group may ask for; a shorter one is refused",
        ),
        Setting("group_session_timeout_max_ms", whole_number(1, 1_000_000_000), "1800000", "likewise, the longest"),
        Setting(
            "offsets_retention_minutes",
            whole_number(1, 100 * 366 * 24 * 60),
            "10080",
            "how long, in minutes, the positions of a group are kept after its last member has left; 10080 is a week",
        ),
        Setting(
            "consumer_session_timeout_s",
            SECONDS,
            "45",
            "how long, in seconds, a member of a group of the newer protocol (KIP-848) may be silent before others are given its "
            "partitions",
        ),
        Setting(
            "consumer_heartbeat_interval_s",
            SECONDS,
            "5",
            "how often, in seconds, such members are asked to report; a change of the group takes about as long to reach them",
        ),
        Setting("drain_timeout_s", SECONDS, "10", "how long, in seconds, a stopping node waits for requests under way"),
        Setting(
            "sasl",
            FLAG,
            "false",
            "whether clients must say who they are, by SASL: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. Access rules (ACLs) are kept "
            "to then as well. It needs admin_password or admin_password_file",
        ),
        Setting("admin_user", USER, "admin", "the user who may do everything, and from whom all others have their rights"),
        Setting(
            "admin_password",
            SECRET,
            "none",
            "the password of that user. It has no option, since others can read a command line: use the environment or the file",
        ),
        Setting("admin_password_file", FILE, "none", "a file with that password, in place of admin_password"),
        Setting(
            "allow_without_rule",
            FLAG,
            "false",
            "whether every user may do what no access rule speaks of; otherwise nobody but the administrator may. Without sasl, "
            "it has access rules kept to for User:ANONYMOUS, who is everyone then, and who may also change them",
        ),
        Setting(
            "tls_cert",
            FILE,
            "none",
            "a PEM file with the certificate of this node, followed by those that vouch for it; with it, the Kafka listener "
            "speaks TLS and nothing else, unless kafka_tls_port makes a second one for that",
        ),
        Setting("tls_key", FILE, "none", "a PEM file with the private key of that certificate"),
        Setting("log_level", choice("debug", "info", "warning", "error"), "info", "what is logged, to standard error"),
        Setting(
            "log_format",
            choice("text", "json"),
            "text",
            "how it is logged: lines for people, or a JSON object a line for collectors",
        ),
        Setting(
            "otel_endpoint",
            or_none(URL),
            "none, unless OTEL_EXPORTER_OTLP_ENDPOINT is set",
            "where traces of requests are sent by OTLP: http://host:4318, https://…, or grpc://host:4317. The other OTEL_… "
            "variables count as well. It needs the extra: pip install 'penstock[otel]'",
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
    """Nobody is to believe in a protection that is only half there."""
    passwords = [config.admin_password is not None, config.admin_password_file is not None]
    if all(passwords):
        raise BadSettingError("admin_password and admin_password_file are both set; give the password once")
    if config.sasl and not any(passwords):
        raise BadSettingError("sasl is true, but the administrator has no password; set admin_password or admin_password_file")
    if any(passwords) and not config.sasl:
        raise BadSettingError("the administrator has a password, but sasl is false and nobody is asked for it; set sasl to true")
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
        told = "not allowed" if setting.is_secret else repr(raw)
        raise BadSettingError(f"{source}: {setting.key} is {told}; it must be {setting.kind.allowed}") from None


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
