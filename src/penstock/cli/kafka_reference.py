"""The reference page of the Kafka protocol: what is served, in which versions, and where an answer is Penstock's own."""

from __future__ import annotations

from typing import Final

from penstock.kafka.protocol import APIS, keys
from penstock.server.kafka_apis import BROKER_NAMES, DYNAMIC_KEYS, SERVED_APIS

TOP: Final = """\
Any Kafka client of the last years connects unchanged. A node names in its answer to ApiVersions what is below, and nothing else.
One node is one broker: it leads every partition and coordinates every group and transaction. A partition has one replica, the
broker itself; copies are kept by the [storage group](../architecture.md) below it.
"""

_INHERITED: Final = ", ".join(f"`{name}`" for name in sorted(BROKER_NAMES.values()))
BROKERS: Final = f"""\
## Settings of a broker while it runs
A broker is configured where it is started. While it runs, AlterConfigs and IncrementalAlterConfigs of its id, or of an empty name
for all brokers, set what topics inherit that do not set it themselves ({_INHERITED}),
and the following. They are stored, count at once, and are shown with their source; any other setting is INVALID_REQUEST."""

NOTES: Final = {
    keys.PRODUCE: "versions below 3 are named but not served: old clients drop compression without them. acks=1 and acks=all "
    "mean the same, stored and synced. Records are checked as Kafka does, also within compression, to at most 128 MiB; numbered "
    "otherwise than from 0 they are INVALID_RECORD where Kafka would number them again",
    keys.FETCH: "sessions, topics by id, long polls; data goes from the disk to the socket without a copy, except over TLS",
    keys.LIST_OFFSETS: "nothing is tiered, so there is no earliest or latest tiered offset",
    keys.METADATA: "a topic that is not there is made, if client and node both want that",
    keys.CREATE_TOPICS: "the replication factor is 1 or left to the broker",
    keys.DESCRIBE_CONFIGS: "of topics, groups and this broker",
    keys.ALTER_CONFIGS: "of topics, groups and brokers, see below",
    keys.INCREMENTAL_ALTER_CONFIGS: "likewise",
    keys.DESCRIBE_LOG_DIRS: "the storage group as one directory",
    keys.OFFSET_FOR_LEADER_EPOCH: "a leader epoch is a generation of the partition's tablet",
    keys.ELECT_LEADERS: "always ELECTION_NOT_NEEDED: a partition whose tablet has stopped is being started again already",
    keys.ALTER_PARTITION_REASSIGNMENTS: "a partition can be asked to stay where it is; other brokers are "
    "INVALID_REPLICA_ASSIGNMENT, and there is never a move to call off",
    keys.LIST_PARTITION_REASSIGNMENTS: "always empty",
    keys.SASL_HANDSHAKE: "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512; see [security](security.md)",
    keys.SASL_AUTHENTICATE: "sessions do not expire, so nobody authenticates twice",
    keys.DESCRIBE_ACLS: "SECURITY_DISABLED unless the node is started with `sasl`",
    keys.CREATE_ACLS: "likewise",
    keys.DELETE_ACLS: "likewise",
    keys.DESCRIBE_CLIENT_QUOTAS: "of users and client ids; see [quotas](quotas.md)",
    keys.ALTER_CLIENT_QUOTAS: "likewise",
    keys.ALTER_USER_SCRAM_CREDENTIALS: "the administrator's password is set where the node is started, not here",
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
