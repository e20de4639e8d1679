"""Generates the reference page of the Kafka protocol: the APIs, their versions, and where Penstock differs from Kafka."""

from __future__ import annotations

from typing import Final

from penstock.kafka.protocol import APIS, keys
from penstock.server.kafka_apis import BROKER_NAMES, DYNAMIC_KEYS, SERVED_APIS

TOP: Final = """\
Any recent Kafka client connects unchanged. ApiVersions lists exactly the APIs below. One node is one broker: alone it leads every
partition and coordinates every group and transaction. In a [cluster](../how-to/run-a-cluster.md), and with
[workers](../how-to/use-all-cores.md), each node leads some of the partitions and one coordinates; a client may ask any of them.
Redundancy is provided by the [storage group](../architecture.md) below the broker, whose disks are shown as replicas.
"""

_INHERITED: Final = ", ".join(f"`{name}`" for name in sorted(BROKER_NAMES.values()))
BROKERS: Final = f"""\
## Settings of a broker while it runs
A broker's static configuration is set where the node is started. At run time, AlterConfigs and IncrementalAlterConfigs on its id,
or on an empty name for all brokers, change the defaults of topics ({_INHERITED})
and the settings below. Changes are stored and take effect at once; any other setting is INVALID_REQUEST."""

NOTES: Final = {
    keys.PRODUCE: "versions below 3 are advertised but rejected, because old clients turn off compression without them. acks=1 "
    "and acks=all mean the same: stored and synced. Records are validated as in Kafka, compressed ones up to 128 MiB of data; "
    "a batch whose offset deltas do not start at 0 is INVALID_RECORD, where Kafka would renumber it",
    keys.FETCH: "fetch sessions, topic ids, long polling; zero-copy from disk to socket, except over TLS",
    keys.LIST_OFFSETS: "there is no tiered storage, so no earliest or latest tiered offset",
    keys.METADATA: "creates missing topics if both client and node allow it; the epoch of a leader is the generation of the "
    "partition's tablet, replicas are the leader and nodes with disks of its storage group",
    keys.FIND_COORDINATOR: "the node that leads coordinates all groups and transactions; any other forwards requests to it",
    keys.CREATE_TOPICS: "the replication factor is 1, on several nodes up to the copies that the storage group keeps, or -1 for "
    "as many; the nodes of an assignment are checked, and leaders are placed by load",
    keys.DESCRIBE_CONFIGS: "of topics, groups and this broker",
    keys.ALTER_CONFIGS: "of topics, groups and brokers, see below",
    keys.INCREMENTAL_ALTER_CONFIGS: "of topics, groups and brokers, see below",
    keys.DESCRIBE_LOG_DIRS: "the storage group as one directory, with the partitions that the asked node leads",
    keys.OFFSET_FOR_LEADER_EPOCH: "a leader epoch is a generation of the partition's tablet",
    keys.ELECT_LEADERS: "always ELECTION_NOT_NEEDED: a partition whose tablet has stopped is restarted automatically",
    keys.ALTER_PARTITION_REASSIGNMENTS: "on several nodes the first broker becomes the leader of the partition and of all others "
    "of its tablet; it is done when it is answered. Otherwise INVALID_REPLICA_ASSIGNMENT says why",
    keys.LIST_PARTITION_REASSIGNMENTS: "always empty",
    keys.SASL_HANDSHAKE: "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512; see [security](security.md)",
    keys.SASL_AUTHENTICATE: "sessions do not expire, so clients never re-authenticate",
    keys.DESCRIBE_ACLS: "SECURITY_DISABLED unless the node is started with `sasl`",
    keys.CREATE_ACLS: "SECURITY_DISABLED unless the node is started with `sasl`",
    keys.DELETE_ACLS: "SECURITY_DISABLED unless the node is started with `sasl`",
    keys.DESCRIBE_CLIENT_QUOTAS: "of users and client ids; see [quotas](quotas.md)",
    keys.ALTER_CLIENT_QUOTAS: "of users and client ids; see [quotas](quotas.md)",
    keys.ALTER_USER_SCRAM_CREDENTIALS: "the administrator's password cannot be changed here, only in the node's configuration",
}


def kafka_page(made: str) -> str:
    """The page, below a line that says how it was made."""
    lines = [made, "# The Kafka protocol", "", TOP, "| Key | Api | Versions | |", "|---:|---|---|---|"]
    for key in sorted(SERVED_APIS & APIS.keys()):
        api = APIS[key]
        versions = f"{api.advertised_min}-{api.max_version}" if api.advertised_min < api.max_version else str(api.max_version)
        lines.append(f"| {key} | {api.name} | {versions} | {NOTES.get(key, '')} |")
    missing = ", ".join(APIS[key].name for key in sorted(APIS.keys() - SERVED_APIS))
    lines += ["", f"Known to the codecs but not served: {missing}.", ""]
    lines += ["Topics are configured under Kafka's names: see [configuration](configuration.md#configuration-of-a-topic).", ""]
    lines += [BROKERS, "", *_others()]
    return "\n".join(lines) + "\n"


def _others() -> list[str]:
    """What can be set of a broker that topics do not inherit."""
    inherited = set(BROKER_NAMES.values())
    return [f"- `{name}`: {key.doc}" for name, key in sorted(DYNAMIC_KEYS.items()) if name not in inherited]
