"""Every metric there is. Names are kept: dashboards and rules of others rely on them."""

from __future__ import annotations

from typing import Final

from penstock.server.metrics.metric import Kind, Metric, Tier

_COUNTER, _GAUGE, _HISTOGRAM = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM
_INTERNAL: Final = Tier.INTERNAL
_FLOW_DOC: Final = "Of at most 100 topics each, those used first; the others are counted together as topic `_other`."

# The process.
BUILD_INFO = Metric("penstock_build_info", _GAUGE, "Always 1; the labels say what runs.", ("version", "python"))
READY = Metric("penstock_ready", _GAUGE, "1 if the node is ready, as /readyz says; otherwise 0.")
START_TIME = Metric("penstock_process_start_time_seconds", _GAUGE, "When the node started, since the epoch.")
CPU = Metric("penstock_process_cpu_seconds_total", _COUNTER, "CPU time of the process, all its threads.")
RESIDENT = Metric("penstock_process_resident_memory_bytes", _GAUGE, "Memory that the process has in use.")
OPEN_FDS = Metric("penstock_process_open_fds", _GAUGE, "File descriptors that are open.")
MAX_FDS = Metric("penstock_process_max_fds", _GAUGE, "File descriptors that may be open.")
FDS_EXHAUSTED = Metric(
    "penstock_process_fds_exhausted_total", _COUNTER, "How often no file descriptor was free for a connection or a file."
)
LOOP_LAG = Metric(
    "penstock_event_loop_lag_seconds",
    _HISTOGRAM,
    "How late the event loop ran a timer, sampled ten times a second.",
    (),
    _INTERNAL,
)
LOOP_LAG_MAX = Metric(
    "penstock_event_loop_lag_max_seconds", _GAUGE, "How late the event loop was at most within the last minute."
)
LOOP_BLOCKS = Metric(
    "penstock_event_loop_blocked_total",
    _COUNTER,
    "How often the event loop was blocked for a second or more; the log has the stack of the call.",
)
LOOP_BLOCK_LONGEST = Metric(
    "penstock_event_loop_blocked_longest_seconds",
    _GAUGE,
    "The longest of those times since the node started; 0 if there was none.",
)
CLOCK_JUMPS = Metric(
    "penstock_clock_jumps_total", _COUNTER, "How often the machine's wall clock was set by more than two seconds."
)
AGE_CLOCK_BEHIND = Metric(
    "penstock_age_clock_behind_seconds",
    _GAUGE,
    "How far the clock that messages age by is behind the machine's; it follows a jump at no more than twice the speed of time.",
)
ALERTS = Metric("penstock_alerts", _GAUGE, "Active alerts, as the overview lists them.", ("code", "level"))

# Requests of clients.
REQUEST_DURATION = Metric(
    "penstock_request_duration_seconds",
    _HISTOGRAM,
    "From the receipt of a request to its response, without the time that a fetch waits for messages. Outcomes: ok; refused, "
    "answered with an error; gone, the client disconnected; failed, the node is at fault.",
    ("gateway", "api", "outcome"),
)
CONNECTIONS = Metric(
    "penstock_connections",
    _GAUGE,
    "Connected clients; those of gRPC only while a call is in flight: with ydb, open streams.",
    ("gateway",),
)
CONNECTIONS_OPENED = Metric(
    "penstock_connections_opened_total", _COUNTER, "Connections that Kafka clients have made.", ("gateway",), _INTERNAL
)
RECEIVED = Metric("penstock_gateway_received_bytes_total", _COUNTER, "Bytes of requests.", ("gateway",), _INTERNAL)
SENT = Metric("penstock_gateway_sent_bytes_total", _COUNTER, "Bytes of answers.", ("gateway",), _INTERNAL)
MEMORY = Metric(
    "penstock_gateway_memory_bytes", _GAUGE, "Memory for requests in flight and responses not sent yet.", ("gateway",)
)
THROTTLED = Metric(
    "penstock_throttled_requests_total", _COUNTER, "Requests after which a client was throttled by its quota.", ("gateway",)
)
THROTTLED_TIME = Metric("penstock_throttled_seconds_total", _COUNTER, "How long clients were throttled.", ("gateway",), _INTERNAL)

SIGN_IN_FAILURES = Metric(
    "penstock_sign_in_failures_total",
    _COUNTER,
    "Sign-ins that were refused: wrong_password, or locked_out, not even tried after too many wrong ones.",
    ("gateway", "reason"),
)
LOCKED_OUT = Metric(
    "penstock_locked_out_addresses", _GAUGE, "Addresses that are locked out now, for one user or for all, after wrong passwords."
)

# What is written and read, by whichever gateway.
PRODUCE_BATCHES = Metric("penstock_produce_batches_total", _COUNTER, f"Batches that are durable. {_FLOW_DOC}", ("topic",))
PRODUCE_MESSAGES = Metric("penstock_produce_messages_total", _COUNTER, f"Messages that are durable. {_FLOW_DOC}", ("topic",))
PRODUCE_BYTES = Metric(
    "penstock_produce_bytes_total",
    _COUNTER,
    f"Bytes of messages that are durable, compressed as they were sent. {_FLOW_DOC}",
    ("topic",),
)
FETCH_READS = Metric("penstock_fetch_reads_total", _COUNTER, f"Reads of partitions. {_FLOW_DOC}", ("topic",))
FETCH_MESSAGES = Metric(
    "penstock_fetch_messages_total",
    _COUNTER,
    f"Messages that clients read, counted by their offsets; looks by the admin API do not count. {_FLOW_DOC}",
    ("topic",),
)
FETCH_BYTES = Metric("penstock_fetch_bytes_total", _COUNTER, f"Bytes that were read. {_FLOW_DOC}", ("topic",))
TOPICS_HIDDEN = Metric(
    "penstock_topics_hidden", _GAUGE, "Topics in use without series of their own, because there are too many.", (), _INTERNAL
)

# What is there.
TOPICS = Metric("penstock_topics", _GAUGE, "Topics.")
PARTITIONS = Metric("penstock_partitions", _GAUGE, "Partitions of all topics.")
TABLETS = Metric("penstock_tablets", _GAUGE, "Tablets of topics, by whether they serve.", ("state",))
TOPIC_BYTES = Metric(
    "penstock_topic_stored_bytes", _GAUGE, "Bytes that a topic keeps; of topics with series of their own.", ("topic",)
)
TOPIC_MESSAGES = Metric(
    "penstock_topic_messages", _GAUGE, "Messages that a topic keeps; of topics with series of their own.", ("topic",)
)
HEAD_BYTES = Metric("penstock_head_bytes", _GAUGE, "Bytes in the heads of all partitions, in memory and on disk.")
BODY_BYTES = Metric("penstock_body_bytes", _GAUGE, "Bytes in the bodies of all partitions.")
HEAD_PIECES = Metric("penstock_head_pieces", _GAUGE, "Pieces that the heads are in.", (), _INTERNAL)
BODIES = Metric("penstock_bodies", _GAUGE, "Bodies of all partitions.", (), _INTERNAL)
TRANSACTIONS = Metric("penstock_transactions_open", _GAUGE, "Open transactions of Kafka producers.")
LEASES = Metric("penstock_leases", _GAUGE, "Leases by which readers delay deletion.", (), _INTERNAL)
CACHE_HITS = Metric("penstock_cache_hits_total", _COUNTER, "Reads of bodies that were in the cache.")
CACHE_MISSES = Metric("penstock_cache_misses_total", _COUNTER, "Reads of bodies that were not in the cache.")
CACHE_BYTES = Metric("penstock_cache_bytes", _GAUGE, "Bytes that the cache holds.")

# Consumers.
CONSUMERS = Metric("penstock_consumers", _GAUGE, "Consumers of any kind that have a committed offset.")
GROUPS = Metric("penstock_groups", _GAUGE, "Kafka consumer groups.", ("kind", "state"))
LAG_MESSAGES = Metric(
    "penstock_consumer_lag_messages",
    _GAUGE,
    "Messages that a consumer has not read, in all partitions of a topic. Of the 200 largest.",
    ("consumer", "topic"),
)
LAG_SECONDS = Metric(
    "penstock_consumer_lag_seconds",
    _GAUGE,
    "The age of the first message that a consumer has not read, in the partition where that is oldest.",
    ("consumer", "topic"),
)
RETENTION_RATIO = Metric(
    "penstock_consumer_retention_ratio",
    _GAUGE,
    "How near the first unread message of a consumer is to being deleted: 0 when it is new, 1 when retention may take it.",
    ("consumer", "topic"),
)
LAGS_HIDDEN = Metric(
    "penstock_consumer_lags_hidden", _GAUGE, "Pairs of consumer and topic that are not shown, because there are too many."
)
TRIM_BLOCKED = Metric(
    "penstock_trimming_blocked_topics", _GAUGE, "Topics that keep more than they should, since a vital consumer needs it."
)

# Streams, as stream clients use them; their durable consumers are the consumers `stream:NAME` above.
STREAM_SUBJECTS = Metric("penstock_stream_subjects", _GAUGE, "Subjects.")
STREAM_CONSUMERS = Metric("penstock_stream_consumers", _GAUGE, "Positions of durable consumers, each in one subject or pattern.")
STREAM_SEQUENCE = Metric("penstock_stream_last_sequence", _GAUGE, "The sequence that was given out last, over all subjects.")
STREAM_PUBLISHED = Metric("penstock_stream_published_messages_total", _COUNTER, "Messages that stream clients have published.")
STREAM_PUBLISHED_BYTES = Metric(
    "penstock_stream_published_bytes_total", _COUNTER, "Bytes of their payloads, in the log or in the payload store."
)
STREAM_READ = Metric("penstock_stream_read_messages_total", _COUNTER, "Messages that were given to stream clients.")
STREAM_READ_BYTES = Metric("penstock_stream_read_bytes_total", _COUNTER, "Bytes of payloads that were given to stream clients.")
STREAM_EXPIRED = Metric(
    "penstock_stream_expired_messages_total", _COUNTER, "Messages of subjects whose time was over, or that were too many."
)
STREAM_ORPHANS = Metric(
    "penstock_stream_orphans_removed_total", _COUNTER, "Payloads that a crash had left without a message, and that are removed."
)
STREAM_REDELIVERED = Metric(
    "penstock_stream_redelivered_messages_total", _COUNTER, "Messages delivered again because they were not acknowledged in time."
)
STREAM_DEAD = Metric(
    "penstock_stream_dead_letters_total",
    _COUNTER,
    "Messages that were not acknowledged after all their deliveries: moved to the dead-letter subject, or dropped if there is "
    "none.",
)

# Tablets.
COMMIT_DURATION = Metric(
    "penstock_tablet_commit_duration_seconds", _HISTOGRAM, "From when a tablet hands a commit to storage to when it is durable."
)
COMMIT_REQUESTS = Metric(
    "penstock_tablet_commit_requests_total", _COUNTER, "Requests that were committed; several share a commit.", (), _INTERNAL
)
COMMIT_FAILURES = Metric("penstock_tablet_commit_failures_total", _COUNTER, "Commits that failed.")
TABLET_STARTS = Metric(
    "penstock_tablet_starts_total",
    _COUNTER,
    "Starts of topics' tablets; more starts than tablets mean that some have restarted.",
    (),
    _INTERNAL,
)

# Storage.
GROUP_STATE = Metric(
    "penstock_storage_group_state",
    _GAUGE,
    "1 for the state that a group is in: healthy, degraded, read-only or lost; 0 for the others.",
    ("group", "state"),
)
STORAGE_USED = Metric("penstock_storage_used_bytes", _GAUGE, "Bytes of chunks, on all disks.")
VDISK_UP = Metric("penstock_vdisk_up", _GAUGE, "1 if a VDisk is open and holds all that it should.", ("vdisk",))
VDISK_LIVE = Metric("penstock_vdisk_live_bytes", _GAUGE, "Bytes of parts that are wanted.", ("vdisk",), _INTERNAL)
VDISK_CHUNKS = Metric("penstock_vdisk_chunks", _GAUGE, "Chunks of a VDisk.", ("vdisk",), _INTERNAL)
VDISK_PARTS = Metric("penstock_vdisk_parts", _GAUGE, "Parts on a VDisk.", ("vdisk",), _INTERNAL)
VDISK_DAMAGED = Metric("penstock_vdisk_damaged_parts", _GAUGE, "Parts on a VDisk that cannot be read any more.", ("vdisk",))
VDISK_TO_HEAL = Metric(
    "penstock_vdisk_to_heal_parts",
    _GAUGE,
    "Parts that a VDisk lacks and that could not be restored in the last round.",
    ("vdisk",),
)
DISK_FREE = Metric("penstock_disk_free_bytes", _GAUGE, "Free space on the disk of a VDisk.", ("vdisk",))
DISK_SIZE = Metric("penstock_disk_size_bytes", _GAUGE, "The size of the disk of a VDisk.", ("vdisk",))
DISK_FULL = Metric("penstock_disk_full", _GAUGE, "1 if the disk of a VDisk accepts only writes that free space.", ("vdisk",))
SYNC_DURATION = Metric(
    "penstock_disk_sync_duration_seconds", _HISTOGRAM, "How long fdatasync of the disk of a VDisk took.", ("vdisk",)
)
DISK_WRITES = Metric("penstock_disk_writes_total", _COUNTER, "Appends to files of a VDisk.", ("vdisk",), _INTERNAL)
DISK_WRITTEN = Metric(
    "penstock_disk_written_bytes_total", _COUNTER, "Bytes that were appended to files of a VDisk.", ("vdisk",), _INTERNAL
)
DISK_FAILURES = Metric("penstock_disk_failures_total", _COUNTER, "Writes that the disk failed to do.", ("vdisk",))
REPLICATION_ROUNDS = Metric(
    "penstock_replication_rounds_total", _COUNTER, "Comparisons of a VDisk with its sisters.", (), _INTERNAL
)
PARTS_RESTORED = Metric("penstock_replication_restored_parts_total", _COUNTER, "Parts that were restored to a VDisk.")
RESTORED_BYTES = Metric("penstock_replication_restored_bytes_total", _COUNTER, "Bytes of parts that were restored to VDisks.")
REFILL_RESTED = Metric(
    "penstock_replication_throttled_seconds_total",
    _COUNTER,
    "How long refills and comparisons waited, so that other traffic keeps its share.",
)
REFILL_RATIO = Metric(
    "penstock_vdisk_refill_ratio",
    _GAUGE,
    "How far a VDisk that is being refilled has got, by channels of tablets; 1 if it holds all that it should.",
    ("vdisk",),
)
PARTS_DROPPED = Metric(
    "penstock_replication_dropped_parts_total",
    _COUNTER,
    "Handoff parts that were dropped because their own VDisk has them.",
    (),
    _INTERNAL,
)
PARTS_FAILED = Metric("penstock_replication_failed_parts_total", _COUNTER, "Parts that could not be restored when tried.")
SCRUB_CHUNKS = Metric("penstock_scrub_chunks_total", _COUNTER, "Chunks that were read and verified.", (), _INTERNAL)
SCRUB_DAMAGED = Metric("penstock_scrub_damaged_parts_total", _COUNTER, "Damaged parts found by scrubbing.")
SCRUB_FINISHED = Metric(
    "penstock_scrub_finished_time_seconds", _GAUGE, "When all of a disk had last been verified, since the epoch.", (), _INTERNAL
)

# Calls between the nodes of a cluster; there are none on a node that is alone.
LINK_CONNECTED = Metric(
    "penstock_interconnect_connected", _GAUGE, "1 if calls to another node can be sent, 0 if they fail at once.", ("peer",)
)
LINK_ROUND_TRIP = Metric(
    "penstock_interconnect_round_trip_seconds", _HISTOGRAM, "Round trips of heartbeats to another node.", ("peer",)
)
LINK_SENT = Metric("penstock_interconnect_sent_bytes_total", _COUNTER, "Bytes sent on the link to another node.", ("peer",))
LINK_RECEIVED = Metric(
    "penstock_interconnect_received_bytes_total", _COUNTER, "Bytes received on the link to another node.", ("peer",)
)
LINK_ERRORS = Metric(
    "penstock_interconnect_errors_total",
    _COUNTER,
    "Calls to another node that got no reply or an error, by status.",
    ("peer", "status"),
)
LINK_CONNECTS = Metric(
    "penstock_interconnect_connects_total", _COUNTER, "How often the link to another node came up.", ("peer",), _INTERNAL
)
LINK_CALLS = Metric("penstock_interconnect_calls_total", _COUNTER, "Calls to another node.", ("peer",), _INTERNAL)
LINK_IN_FLIGHT = Metric(
    "penstock_interconnect_in_flight_calls", _GAUGE, "Calls to another node that have no reply yet.", ("peer",), _INTERNAL
)
LINK_LATE = Metric(
    "penstock_interconnect_late_replies_total",
    _COUNTER,
    "Replies of another node that came after the caller had given up.",
    ("peer",),
    _INTERNAL,
)
SERVED_CALLS = Metric("penstock_interconnect_served_calls_total", _COUNTER, "Calls of other nodes.", (), _INTERNAL)
SERVED_ERRORS = Metric(
    "penstock_interconnect_served_errors_total",
    _COUNTER,
    "Calls of other nodes that were answered with an error, by status.",
    ("status",),
    _INTERNAL,
)
SERVED_HELD = Metric("penstock_interconnect_served_bytes", _GAUGE, "Bytes of the calls that are being served.", (), _INTERNAL)
SERVED_REFUSED = Metric(
    "penstock_interconnect_refused_connections_total",
    _COUNTER,
    "Connections to the port for other nodes that were refused, by reason.",
    ("reason",),
)

# Tablets of a cluster, on the node that leads it.
PLACED_TABLETS = Metric(
    "penstock_placement_tablets", _GAUGE, "Tablets of topics that a node owns, as its leader sees it.", ("node",)
)
PLACED_PARTITIONS = Metric("penstock_placement_partitions", _GAUGE, "Partitions of these tablets.", ("node",))
PLACEMENT_MOVING = Metric("penstock_placement_moving_tablets", _GAUGE, "Tablets on their way from one node to another.")
PLACEMENT_DOWN = Metric(
    "penstock_placement_unserved_tablets", _GAUGE, "Tablets that have no owner, or one that is lost or does not run them."
)
PLACEMENT_MOVES = Metric(
    "penstock_placement_moves_total", _COUNTER, "Tablets that were handed over to another node, by reason.", ("reason",)
)
PLACEMENT_TAKEOVERS = Metric("penstock_placement_takeovers_total", _COUNTER, "Tablets that were taken over from a lost node.")
PLACEMENT_STARTS = Metric("penstock_placement_starts_total", _COUNTER, "Orders to a node to start a tablet.", (), _INTERNAL)
PLACEMENT_PAUSE = Metric(
    "penstock_placement_pause_seconds",
    _HISTOGRAM,
    "How long a tablet was not served: while it was moved, or from when its node was last reached until another one ran it.",
    ("cause",),
)

# Upkeep of topics.
COMPACTION_DURATION = Metric("penstock_compaction_duration_seconds", _HISTOGRAM, "Passes of compaction over a partition.")
COMPACTION_READ = Metric("penstock_compaction_read_bytes_total", _COUNTER, "Bytes that compaction read.")
COMPACTION_FREED = Metric("penstock_compaction_freed_bytes_total", _COUNTER, "Bytes that compaction freed.")
COMPACTION_FAILURES = Metric("penstock_compaction_failures_total", _COUNTER, "Passes of compaction that failed and are retried.")
DAMAGED_PARTITIONS = Metric("penstock_damaged_partitions", _GAUGE, "Partitions known to have lost stored data.")
RETENTION_MESSAGES = Metric("penstock_retention_messages_total", _COUNTER, "Messages that retention deleted.")
RETENTION_FAILURES = Metric("penstock_retention_failures_total", _COUNTER, "Partitions where retention failed and is retried.")

# Pipelines, as they report themselves; 100 at most.
PIPELINES = Metric("penstock_pipelines", _GAUGE, "Pipelines.", ("state",))
PIPELINE_LAG = Metric("penstock_pipeline_lag_rows", _GAUGE, "Rows of its source that a pipeline has not read.", ("pipeline",))
PIPELINE_READ = Metric("penstock_pipeline_read_rows_total", _COUNTER, "Rows that a pipeline read in this run.", ("pipeline",))
PIPELINE_WRITTEN = Metric(
    "penstock_pipeline_written_rows_total", _COUNTER, "Rows that a pipeline wrote in this run.", ("pipeline",)
)
PIPELINE_DEAD = Metric("penstock_pipeline_dead_letters_total", _COUNTER, "Rows that a pipeline could not use.", ("pipeline",))
PIPELINE_LATE = Metric(
    "penstock_pipeline_late_rows_total",
    _COUNTER,
    "Rows that a pipeline dropped because they came after the watermark.",
    ("pipeline",),
)
PIPELINE_EMPTY = Metric(
    "penstock_pipeline_empty_rows_total", _COUNTER, "Rows that a pipeline read without any field of their schema.", ("pipeline",)
)
PIPELINE_BATCH = Metric(
    "penstock_pipeline_last_batch_seconds", _GAUGE, "How long the last batch of a pipeline took.", ("pipeline",)
)
DEPLOYED_PIPELINES = Metric("penstock_deployed_pipelines", _GAUGE, "Pipelines that are deployed on this node.", ("state",))
PIPELINE_RESTARTS = Metric(
    "penstock_pipeline_restarts_total",
    _COUNTER,
    "How often the node started a deployed pipeline again after it or its driver failed.",
    ("pipeline",),
)
PIPELINE_UP = Metric(
    "penstock_pipeline_up",
    _GAUGE,
    "Whether a deployed pipeline runs: 0 while it fails or restarts although it is wanted.",
    ("pipeline",),
)

# The watching itself.
SCRAPE_DURATION = Metric("penstock_scrape_duration_seconds", _GAUGE, "How long the last scrape took.", (), _INTERNAL)
SURVEY_DURATION = Metric(
    "penstock_survey_duration_seconds",
    _GAUGE,
    "How long the last pass over partitions and committed offsets took.",
    (),
    _INTERNAL,
)
SURVEY_AGE = Metric("penstock_survey_age_seconds", _GAUGE, "Age of the results of the last such pass.", (), _INTERNAL)

METRICS: Final = tuple(value for value in list(globals().values()) if isinstance(value, Metric))


def catalogue() -> list[dict[str, object]]:
    """Every metric, as it is listed to others."""
    return [
        {
            "name": metric.name,
            "type": metric.kind.value,
            "unit": metric.unit,
            "labels": list(metric.labels),
            "tier": metric.tier.value,
            "doc": metric.doc,
        }
        for metric in METRICS
    ]
