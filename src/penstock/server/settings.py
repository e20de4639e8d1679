"""Every setting of a node: its name, the kind of its values, its default and its description."""

from __future__ import annotations

from typing import Final

from penstock.server.cluster_settings import CLUSTER_SETTINGS
from penstock.server.kinds import (
    CONSOLES,
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
    choice,
    duration,
    or_none,
    whole_number,
)
from penstock.server.setting import Setting

NODE_ID_MAX = (1 << 31) - 1
WORKERS_MAX: Final = 64


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
        Setting(
            "workers",
            whole_number(1, WORKERS_MAX),
            "1",
            "how many processes serve topics, to use more than one core. Each is a broker to Kafka clients, at kafka_port, "
            "kafka_port + 1 and so on, with health and metrics at http_port + 1 and so on, and an id, a directory and a disk of "
            "its own below the data directory; disks, if they are given, are one for each. May be raised later, and lowered "
            "again while no topic is on those left out",
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
            "console_peers",
            CONSOLES,
            "none",
            "consoles of other clusters, which the console offers in its menu of clusters: each opens at its own address, with a "
            "sign-in of its own",
        ),
        Setting(
            "schema_registry_port",
            PORT,
            "none",
            "a port of its own for the schema registry, usually 8081; 0 picks a free one. The registry is also at "
            "/schema-registry of the HTTP listener. JSON Schema and Protobuf need the extra: pip install 'penstock[schemas]'",
        ),
        Setting(
            "yt_port",
            PORT,
            "none",
            "the port for YT clients (HTTP proxy); 0 picks a free one. Needs the extra: pip install 'penstock[yt]'",
        ),
        Setting(
            "cluster_name",
            NAME,
            "penstock",
            "the name of this cluster: in etcd, and in paths of YT clients: <cluster=name>//path",
        ),
        *CLUSTER_SETTINGS,
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
            duration(1, "milliseconds", 0, 60_000),
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
            duration(1, "milliseconds", 1, 1_000_000_000),
            "1000",
            "the smallest session timeout, in milliseconds, a member of a classic group may request",
        ),
        Setting(
            "group_session_timeout_max_ms",
            duration(1, "milliseconds", 1, 1_000_000_000),
            "1800000",
            "the largest session timeout, in milliseconds, a member of a classic group may request",
        ),
        Setting(
            "offsets_retention_minutes",
            duration(60_000, "minutes", 1, 100 * 366 * 24 * 60),
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
            "pipelines",
            choice("auto", "on", "off"),
            "auto",
            "whether pipelines can be deployed on this node; they run code as the user of the node. auto: if sasl is set, or "
            "only this machine reaches the node. Needs the extra: pip install 'penstock[spark]'",
        ),
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
