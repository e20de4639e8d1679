"""Turns measurements into samples for a scrape. Nothing here iterates over all topics or offsets."""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock import __version__
from penstock.blob import DEGRADED, HEALTHY, LOST, READ_ONLY, LocalDisk
from penstock.core.probe import Durations
from penstock.placement import MoveReason
from penstock.server.metrics import declarations as m
from penstock.server.metrics.metric import Metric, Samples, Tier
from penstock.server.metrics.process import read_process
from penstock.server.pipelines import RUNNING, DeploymentKeeper

if TYPE_CHECKING:
    from penstock.broker.streams import Streams
    from penstock.interconnect import Interconnect
    from penstock.placement import Placement
    from penstock.server.metrics.observatory import Observatory
    from penstock.server.metrics.sources import Sources

LAGS_SHOWN: Final = 200
PIPELINES_SHOWN: Final = 100
_GROUP_STATES: Final = (HEALTHY, DEGRADED, READ_ONLY, LOST)


def read_all(observatory: Observatory, tier: Tier) -> Samples:
    """Every sample of a tier; the internal one has them all."""
    samples = _Tiered(tier)
    _read_process(observatory, samples)
    if observatory.interconnect is not None:
        read_interconnect(observatory.interconnect, samples)
    if (placement := observatory.placement()) is not None:
        read_placement(placement, samples)
    sources = observatory.sources
    if sources is None:
        return samples
    _read_requests(sources, samples)
    _read_flows(observatory, samples)
    _read_survey(observatory, samples)
    _read_broker(sources, samples)
    if sources.streams is not None:
        _read_streams(sources.streams, samples)
    _read_storage(sources, samples)
    _read_disks(sources, samples)
    if observatory.survey is not None:
        _read_pipelines(observatory.survey.last.pipelines, samples)
    if sources.deployments is not None:
        _read_deployments(sources.deployments, samples)
    return samples


class _Tiered(Samples):
    """Drops samples that are not of a tier."""

    __slots__ = ("_takes_all",)

    def __init__(self, tier: Tier) -> None:
        super().__init__()
        self._takes_all = tier is Tier.INTERNAL

    def add(self, metric: Metric, value: int | float | Durations, *labels: str) -> None:
        if self._takes_all or metric.tier is Tier.PUBLIC:
            super().add(metric, value, *labels)


def _read_process(observatory: Observatory, samples: Samples) -> None:
    reading = read_process()
    samples.add(m.BUILD_INFO, 1, __version__, platform.python_version())
    samples.add(m.READY, int(not observatory.trouble()))
    samples.add(m.START_TIME, observatory.started_s)
    samples.add(m.CPU, reading.cpu_s)
    samples.add(m.RESIDENT, reading.resident_bytes)
    samples.add(m.OPEN_FDS, reading.open_fds)
    samples.add(m.MAX_FDS, reading.max_fds)
    samples.add(m.FDS_EXHAUSTED, observatory.descriptors.exhaustions)
    watch = observatory.loop_watch
    samples.add(m.LOOP_LAG, watch.lag)
    samples.add(m.LOOP_LAG_MAX, watch.worst_s)
    samples.add(m.LOOP_BLOCKS, watch.blocks)
    samples.add(m.LOOP_BLOCK_LONGEST, watch.longest_block_s)
    samples.add(m.CLOCK_JUMPS, watch.jumps)
    counts: dict[tuple[str, str], int] = {}
    for alert in observatory.alerts:
        counts[alert.code, alert.level] = counts.get((alert.code, alert.level), 0) + 1
    for (code, level), count in counts.items():
        samples.add(m.ALERTS, count, code, level)


def _read_requests(sources: Sources, samples: Samples) -> None:
    durations: dict[tuple[str, str, str], Durations] = {}
    for name, probe in sources.probes():
        for api, outcome, counts in probe.requests():
            known = durations.setdefault((name, api, outcome), Durations())
            known.add(counts)
    for labels, total in sorted(durations.items()):
        samples.add(m.REQUEST_DURATION, total, *labels)
    sums: dict[str, list[float]] = {}
    for name, probe in sources.probes():
        own = sums.setdefault(name, [0, 0, 0, 0, 0.0])
        for at, value in enumerate(
            (probe.connections_opened, probe.bytes_in, probe.bytes_out, probe.throttled, probe.throttled_s)
        ):
            own[at] += value
    for metric, at in ((m.CONNECTIONS_OPENED, 0), (m.RECEIVED, 1), (m.SENT, 2), (m.THROTTLED, 3), (m.THROTTLED_TIME, 4)):
        for name, own in sums.items():
            samples.add(metric, own[at], name)
    _read_gateways(sources, samples)


def _read_gateways(sources: Sources, samples: Samples) -> None:
    for metric, attribute in ((m.CONNECTIONS, "connections"), (m.MEMORY, "memory_used")):
        totals: dict[str, int] = {}
        for name, gateway in sources.gateways:
            value = getattr(gateway, attribute, None)
            if value is not None:
                totals[name] = totals.get(name, 0) + int(value)
        for name, total in totals.items():
            samples.add(metric, total, name)


def _read_flows(observatory: Observatory, samples: Samples) -> None:
    shown = observatory.flows.shown()
    for at, metric in enumerate(
        (m.PRODUCE_BATCHES, m.PRODUCE_MESSAGES, m.PRODUCE_BYTES, m.FETCH_READS, m.FETCH_MESSAGES, m.FETCH_BYTES)
    ):
        for name, counts in shown:
            samples.add(metric, counts[at], name)
    samples.add(m.TOPICS_HIDDEN, observatory.flows.hidden)


def _read_survey(observatory: Observatory, samples: Samples) -> None:
    if observatory.survey is None:
        return
    survey = observatory.survey.last
    for metric, value in (
        (m.TOPICS, survey.topics),
        (m.PARTITIONS, survey.partitions),
        (m.HEAD_BYTES, survey.head_bytes),
        (m.BODY_BYTES, survey.body_bytes),
        (m.HEAD_PIECES, survey.head_pieces),
        (m.BODIES, survey.bodies),
        (m.CONSUMERS, survey.consumers),
        (m.LAGS_HIDDEN, max(len(survey.lags) - LAGS_SHOWN, 0)),
        (m.TRIM_BLOCKED, len(survey.blocked)),
        (m.SURVEY_DURATION, survey.duration_s),
        (m.SURVEY_AGE, observatory.clock.monotonic() - survey.taken_s if survey.topics else 0.0),
    ):
        samples.add(metric, value)
    hosted, up = survey.tablets
    samples.add(m.TABLETS, up, "serving")
    samples.add(m.TABLETS, hosted - up, "starting")
    samples.add(m.DAMAGED_PARTITIONS, len(survey.damaged))
    for count in survey.groups:
        samples.add(m.GROUPS, count.groups, count.kind, count.state)
    for sizes, metric in ((survey.topic_bytes, m.TOPIC_BYTES), (survey.topic_messages, m.TOPIC_MESSAGES)):
        for name, _ in observatory.flows.shown():
            if name in sizes:
                samples.add(metric, sizes[name], name)
    lags = survey.lags[:LAGS_SHOWN]
    for lag in lags:
        samples.add(m.LAG_MESSAGES, lag.messages, lag.consumer, lag.topic)
    for lag in lags:
        samples.add(m.LAG_SECONDS, lag.seconds, lag.consumer, lag.topic)
    for lag in lags:
        samples.add(m.RETENTION_RATIO, min(lag.retention_share, 1.0), lag.consumer, lag.topic)


def _read_broker(sources: Sources, samples: Samples) -> None:
    for (gateway, reason), count in sorted(sources.broker.sign_in.failures.items()):
        samples.add(m.SIGN_IN_FAILURES, count, gateway, reason)
    samples.add(m.LOCKED_OUT, sources.broker.sign_in.locked_out())
    reading = sources.broker.reading()
    probe, cache = sources.broker.probe, reading.cache
    for metric, value in (
        (m.TRANSACTIONS, reading.open_transactions()),
        (m.LEASES, len(sources.broker.leases)),
        (m.CACHE_HITS, cache.hits),
        (m.CACHE_MISSES, cache.misses),
        (m.CACHE_BYTES, cache.bytes_held),
        (m.COMMIT_DURATION, probe.tablets.commits),
        (m.COMMIT_REQUESTS, probe.tablets.requests),
        (m.COMMIT_FAILURES, probe.tablets.failures),
        (m.TABLET_STARTS, probe.tablet_starts),
        (m.COMPACTION_DURATION, probe.compaction),
        (m.COMPACTION_READ, probe.compaction_bytes_read),
        (m.COMPACTION_FREED, probe.compaction_bytes_freed),
        (m.COMPACTION_FAILURES, probe.compaction_failures),
        (m.AGE_CLOCK_BEHIND, reading.age_clock_behind_s()),
        (m.RETENTION_MESSAGES, probe.expired_messages),
        (m.RETENTION_FAILURES, probe.retention_failures),
    ):
        samples.add(metric, value)


def _read_streams(streams: Streams, samples: Samples) -> None:
    probe = streams.probe
    for metric, value in (
        (m.STREAM_SUBJECTS, len(streams.subjects())),
        (m.STREAM_CONSUMERS, streams.positions.count),
        (m.STREAM_SEQUENCE, streams.newest_sequence),
        (m.STREAM_PUBLISHED, probe.published),
        (m.STREAM_PUBLISHED_BYTES, probe.published_bytes),
        (m.STREAM_READ, probe.read),
        (m.STREAM_READ_BYTES, probe.read_bytes),
        (m.STREAM_EXPIRED, probe.expired),
        (m.STREAM_ORPHANS, probe.orphans_removed),
        (m.STREAM_REDELIVERED, probe.redelivered),
        (m.STREAM_DEAD, probe.dead_lettered),
    ):
        samples.add(metric, value)


def _read_storage(sources: Sources, samples: Samples) -> None:
    life, state = sources.life, sources.state()
    for known in _GROUP_STATES:
        samples.add(m.GROUP_STATE, int(known == state), str(life.group.id), known)
    samples.add(m.STORAGE_USED, sources.used())
    probe = life.probe
    for metric, value in (
        (m.REPLICATION_ROUNDS, probe.rounds),
        (m.PARTS_RESTORED, probe.parts_restored),
        (m.RESTORED_BYTES, life.pace.restored_bytes),
        (m.REFILL_RESTED, life.pace.rested_s),
        (m.PARTS_DROPPED, probe.parts_dropped),
        (m.PARTS_FAILED, probe.parts_failed),
        (m.SCRUB_CHUNKS, probe.chunks_scrubbed),
        (m.SCRUB_DAMAGED, probe.damaged_found),
        (m.SCRUB_FINISHED, probe.scrub_finished_ms / 1000),
    ):
        samples.add(metric, value)


def _read_disks(sources: Sources, samples: Samples) -> None:
    disks, vdisks, to_heal = sources.disks(), sources.life.vdisks, sources.life.probe.to_heal
    for disk in disks:
        samples.add(m.VDISK_UP, int(disk.is_up), str(disk.order))
        samples.add(m.VDISK_TO_HEAL, to_heal.get(disk.order, 0), str(disk.order))
        samples.add(m.DISK_FULL, int(disk.is_full), str(disk.order))
        if disk.size >= 0:
            samples.add(m.DISK_FREE, disk.free, str(disk.order))
            samples.add(m.DISK_SIZE, disk.size, str(disk.order))
    refills = sources.life.refills()
    for order, vdisk in vdisks.items():
        samples.add(m.REFILL_RATIO, refills[order].ratio if order in refills else 1, str(order))
        chunks = vdisk.index.chunks
        samples.add(m.VDISK_LIVE, sum(use.live for use in chunks.values()), str(order))
        samples.add(m.VDISK_CHUNKS, len(chunks), str(order))
        samples.add(m.VDISK_PARTS, vdisk.index.parts, str(order))
        samples.add(m.VDISK_DAMAGED, len(vdisk.index.damaged), str(order))
        if isinstance(vdisk.disk, LocalDisk):
            probe = vdisk.disk.probe
            samples.add(m.SYNC_DURATION, probe.syncs, str(order))
            samples.add(m.DISK_WRITES, probe.writes, str(order))
            samples.add(m.DISK_WRITTEN, probe.bytes_written, str(order))
            samples.add(m.DISK_FAILURES, probe.failures, str(order))


def read_interconnect(interconnect: Interconnect, samples: Samples) -> None:
    """The links to other nodes, and the calls that this one serves."""
    for node_id, link in interconnect.links.items():
        probe, peer = link.probe, str(node_id)
        for metric, value in (
            (m.LINK_CONNECTED, int(probe.is_connected)),
            (m.LINK_SENT, probe.bytes_out),
            (m.LINK_RECEIVED, probe.bytes_in),
            (m.LINK_CONNECTS, probe.connects),
            (m.LINK_CALLS, probe.calls),
            (m.LINK_IN_FLIGHT, probe.in_flight),
            (m.LINK_LATE, probe.late_replies),
        ):
            samples.add(metric, value, peer)
        samples.add(m.LINK_ROUND_TRIP, probe.round_trips, peer)
        for status, count in sorted(probe.errors.items()):
            samples.add(m.LINK_ERRORS, count, peer, status.lower())
    served = interconnect.service.probe
    samples.add(m.SERVED_CALLS, served.calls)
    samples.add(m.SERVED_HELD, served.bytes_held)
    for status, count in sorted(served.errors.items()):
        samples.add(m.SERVED_ERRORS, count, status.lower())
    for reason, count in sorted(served.refused.items()):
        samples.add(m.SERVED_REFUSED, count, reason.lower())


def read_placement(placement: Placement, samples: Samples) -> None:
    """What nodes own, and what has moved between them."""
    probe = placement.probe
    for node_id in placement.nodes:
        samples.add(m.PLACED_TABLETS, probe.tablets[node_id], str(node_id))
        samples.add(m.PLACED_PARTITIONS, probe.partitions[node_id], str(node_id))
    samples.add(m.PLACEMENT_MOVING, placement.moving)
    samples.add(m.PLACEMENT_DOWN, probe.unserved)
    for reason in MoveReason:
        samples.add(m.PLACEMENT_MOVES, probe.moves[reason], reason.value)
    samples.add(m.PLACEMENT_TAKEOVERS, probe.takeovers)
    samples.add(m.PLACEMENT_STARTS, probe.starts)
    for cause, pauses in probe.pauses.items():
        samples.add(m.PLACEMENT_PAUSE, pauses, cause)


def _read_pipelines(reports: list[dict[str, Any]], samples: Samples) -> None:
    states: dict[str, int] = {}
    for report in reports:
        states[str(report.get("state"))] = states.get(str(report.get("state")), 0) + 1
    for state, count in sorted(states.items()):
        samples.add(m.PIPELINES, count, state)
    fields: tuple[tuple[Metric, str, Callable[[float], float]], ...] = (
        (m.PIPELINE_LAG, "lag_rows", float),
        (m.PIPELINE_READ, "rows_read", float),
        (m.PIPELINE_WRITTEN, "rows_written", float),
        (m.PIPELINE_DEAD, "dead_letters", float),
        (m.PIPELINE_LATE, "late_rows", float),
        (m.PIPELINE_EMPTY, "empty_rows", float),
        (m.PIPELINE_BATCH, "last_batch_ms", lambda value: value / 1000),
    )
    for metric, key, scaled in fields:
        for report in reports[:PIPELINES_SHOWN]:
            if isinstance(report.get(key), int | float):
                samples.add(metric, scaled(report[key]), str(report.get("name")))


def _read_deployments(keeper: DeploymentKeeper, samples: Samples) -> None:
    deployed = keeper.deployed()
    states: dict[str, int] = {}
    for _, status in deployed.values():
        states[status.state] = states.get(status.state, 0) + 1
    for state, count in sorted(states.items()):
        samples.add(m.DEPLOYED_PIPELINES, count, state)
    shown = list(deployed.items())[:PIPELINES_SHOWN]
    for name, (_, status) in shown:
        samples.add(m.PIPELINE_RESTARTS, status.restarts, name)
    for name, (deployment, status) in shown:
        if deployment.wanted == "running":
            samples.add(m.PIPELINE_UP, int(status.state == RUNNING), name)
