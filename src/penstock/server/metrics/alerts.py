"""Alerts: what needs attention, and what to do about it. Pure: the same facts give the same alerts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple
from urllib.parse import quote

WARNING, CRITICAL = "warning", "critical"
EACH_MAX: Final = 5  # alerts of one code; more of the same say no more
FREE_LOW: Final = 0.10
FREE_CRITICAL: Final = 0.05
RETENTION_NEAR: Final = 0.8
RETENTION_CRITICAL: Final = 0.95
LOOP_LAG_S: Final = 0.5
LOOP_LAG_CRITICAL_S: Final = 5.0
CLOCK_JUMP_SHOWN_S: Final = 600.0
BLOCK_SHOWN_S: Final = 600.0
AGE_CLOCK_BEHIND_S: Final = 3600.0
PIPELINE_SILENT_MS: Final = 60_000
IDLE_S: Final = 300.0  # without members and commits: the consumer does not run
ABANDONED_S: Final = 86_400.0  # after this long its owner knows, or there is none
_PIPELINE_ALIVE: Final = frozenset({"starting", "running", "waiting", "restarting"})

# Of each kind of trouble with a cluster: the code of its alert, what to do, and where the console shows it.
_CLUSTER_ALERTS: Final = {
    "node": (
        "node_lost",
        "start it again, or replace it (penstock node list shows all); until then the cluster may survive no further failure",
        "/nodes",
    ),
    "group": (
        "group_at_risk",
        "bring the node or disk back, or replace the disk (penstock disk replace); until then stop no other node",
        "/storage",
    ),
    "tablets": (
        "tablets_not_served",
        "clients wait for these partitions: see penstock tablet list for why, and start the nodes that can run them",
        "/nodes",
    ),
    "store": ("etcd_away", "bring etcd back: nodes go on serving, but no tablet moves and no node can join", "/nodes"),
}


class Alert(NamedTuple):
    """One thing, what to do about it, and where the console shows it. What it is about, `cluster`, `topic`, `consumer` or
    `pipeline`, and the name of that decide who may see it."""

    level: str
    code: str
    message: str
    what_to_do: str
    link: str
    about: str = "cluster"
    name: str = ""


class DiskFacts(NamedTuple):
    """A VDisk and the room on its disk; -1 where it is not known."""

    order: int
    path: str
    is_up: bool
    is_full: bool
    free: int
    size: int


class DamagedDisk(NamedTuple):
    """A VDisk and the parts on it that cannot be read any more; of a group with copies, those that could not be restored.
    `places` are what some of the parts belong to, in words, and `topics` the topics among that."""

    vdisk: str
    path: str
    parts: int
    places: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    has_copies: bool = False

    def told(self, disk: str) -> str:
        """What is damaged, as a sentence that calls the disk so."""
        parts = "1 part" if self.parts == 1 else f"{self.parts} parts"
        if self.has_copies:
            return f"{disk} lacks {parts} that could not be restored from the other disks"
        of_what = f", of {'; '.join(self.places)}" if self.places else ""
        return f"{disk} has {parts} that cannot be read, and there is no other copy{of_what}"


class ClusterTrouble(NamedTuple):
    """Something is wrong with the cluster: with a `node`, with a storage `group` that can lose nothing more or has lost too much,
    with `tablets` that no node serves, or with the `store` by which nodes agree."""

    kind: str
    message: str
    is_critical: bool = False


class LagFacts(NamedTuple):
    """A consumer in a topic."""

    consumer: str
    topic: str
    messages: int
    seconds: float
    retention_share: float
    is_growing: bool
    idle_s: float = 0.0  # how long it has had no members and committed nothing

    @property
    def is_idle(self) -> bool:
        """Whether nothing consumes for it now."""
        return self.idle_s >= IDLE_S

    @property
    def is_abandoned(self) -> bool:
        """Whether nothing has consumed for it for so long that it may be forgotten."""
        return self.idle_s >= ABANDONED_S

    @property
    def advice(self) -> str:
        """What to do about a consumer that does not run."""
        return f"start its members, or delete it if it is no longer used (penstock group delete {self.consumer})"


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that alerts are derived from."""

    now_ms: int = 0
    group_state: str = "healthy"
    cluster_troubles: Sequence[ClusterTrouble] = ()
    disks: Sequence[DiskFacts] = ()
    lags: Sequence[LagFacts] = ()
    unknown_losses: Sequence[str] = ()  # of the log of a disk that has no sisters
    damaged_disks: Sequence[DamagedDisk] = ()
    damaged: Mapping[tuple[str, int], str] | None = None  # partitions of which something is lost, and what
    blocked: Mapping[str, str] | None = None
    pipelines: Sequence[Mapping[str, Any]] = ()
    clock_jump_s: float | None = None  # the last one, if it was lately
    age_clock_behind_s: float = 0.0  # how far messages age behind the machine's clock
    loop_lag_max_s: float = 0.0
    locked_out: int = 0  # addresses, after wrong passwords
    silent_listeners: Mapping[str, str] = field(default_factory=dict)  # and why
    lacks_descriptors: bool = False  # whether no file descriptor was left lately
    loop_block_s: float | None = None  # how long the last block of a second or more was, if it was lately


def alerts_of(facts: Facts) -> list[Alert]:
    """Everything that needs attention, the worst first."""
    rules: tuple[Callable[[Facts], Iterator[Alert]], ...] = (
        _storage,
        _cluster,
        _damaged,
        _space,
        _retention,
        _growing,
        _blocked,
        _pipelines,
        _clock,
        _loop,
        _listeners,
        _guessing,
        _block,
        _descriptors,
    )
    alerts = [alert for rule in rules for alert in islice(rule(facts), EACH_MAX)]
    return sorted(alerts, key=lambda alert: alert.level != CRITICAL)


def _storage(facts: Facts) -> Iterator[Alert]:
    out = [disk for disk in facts.disks if not disk.is_up]
    named = ", ".join(f"{disk.order} ({disk.path})" for disk in out)
    if facts.group_state == "lost":
        yield Alert(
            CRITICAL,
            "storage_lost",
            f"too few disks are left to read what is stored: VDisks {named} are out",
            "bring disks back: mount them, fix permissions; each is used again within seconds; nothing is deleted meanwhile",
            "/storage",
        )
    elif facts.group_state == "read-only":
        yield Alert(
            CRITICAL,
            "storage_read_only",
            f"nothing can be written: too many disks are full or fail{': VDisks ' + named if named else ''}",
            "make room on the disks or shorten retention; if a disk fails or hangs, the log says how: replace it",
            "/storage",
        )
    elif (
        facts.group_state == "degraded" and not facts.unknown_losses
    ):  # an only disk is told of as damaged, and nothing refills it
        yield Alert(
            WARNING,
            "storage_degraded",
            f"VDisks {named} are out, failing or being refilled: fewer further failures are survived"
            if named
            else "a disk is full, or one of another node is out",
            "see which disk it is and why; once it is back, it is refilled automatically",
            "/storage",
        )


def _cluster(facts: Facts) -> Iterator[Alert]:
    for trouble in facts.cluster_troubles:
        code, advice, link = _CLUSTER_ALERTS[trouble.kind]
        yield Alert(CRITICAL if trouble.is_critical else WARNING, code, trouble.message, advice, link)


def _damaged(facts: Facts) -> Iterator[Alert]:
    for loss in facts.unknown_losses:
        yield Alert(
            CRITICAL,
            "disk_damaged",
            f"the only disk has lost part of its log: {loss}; what was written last to some partitions may be gone",
            "restore the disk from a copy if there is one; otherwise compare the last messages of topics with what was produced",
            "/storage",
        )
    for disk in facts.damaged_disks:
        if disk.has_copies:
            advice = "restoring is tried again every few seconds; the log says what fails. Until then fewer failures are survived"
        elif disk.topics:
            advice = (
                f"restore the disk from a copy if there is one; otherwise `penstock topic repair {disk.topics[0]}` names the "
                "lost offsets and gives them up. Check the disk: it may fail"
            )
        else:
            advice = (
                "restore the disk from a copy before the next restart of the node, which may refuse to start without these parts "
                "(then see give_up_tablets). Check the disk: it may fail"
            )
        level, code = (WARNING, "parts_not_restored") if disk.has_copies else (CRITICAL, "disk_damaged")
        yield Alert(level, code, disk.told(f"VDisk {disk.vdisk} at {disk.path}"), advice, "/storage")
    for (topic, _), what in (facts.damaged or {}).items():
        yield Alert(
            CRITICAL,
            "partition_damaged",
            what,
            f"restore the disk from a copy if there is one; otherwise `penstock topic repair {topic}` names the lost offsets "
            "and gives them up",
            _link("topics", topic),
            "topic",
            topic,
        )


def _space(facts: Facts) -> Iterator[Alert]:
    for disk in facts.disks:
        if disk.size <= 0:
            continue
        share = disk.free / disk.size
        if share >= FREE_LOW and not disk.is_full:
            continue
        level = CRITICAL if disk.is_full or share < FREE_CRITICAL else WARNING
        yield Alert(
            level,
            "disk_nearly_full",
            f"the disk of VDisk {disk.order}, {disk.path}, "
            + (
                f"is full: the {disk.free >> 20} MiB that are free are reserved for deletes"
                if disk.is_full
                else f"has {share:.0%} left, {disk.free >> 20} MiB"
            ),
            "delete topics, shorten retention, or give the disk more room; a full disk accepts no messages",
            "/storage",
        )


def _retention(facts: Facts) -> Iterator[Alert]:
    for lag in sorted(facts.lags, key=lambda lag: -lag.retention_share):
        if lag.retention_share < RETENTION_NEAR:
            return
        if lag.is_abandoned and lag.retention_share >= 1:
            continue  # its messages are deleted already, and it is in the list of groups
        yield Alert(
            CRITICAL if lag.retention_share >= RETENTION_CRITICAL else WARNING,
            "consumer_near_retention",
            f"consumer {lag.consumer} has used up {min(lag.retention_share, 1):.0%} of the retention of topic {lag.topic}: what "
            f"it has not consumed is about to be deleted",
            f"{lag.advice}; to be safe, raise retention.ms of {lag.topic} until it has caught up"
            if lag.is_idle
            else f"see why {lag.consumer} is slow; to be safe, raise retention.ms of {lag.topic} until it has caught up",
            _link("consumers", lag.consumer),
            "consumer",
            lag.consumer,
        )


def _growing(facts: Facts) -> Iterator[Alert]:
    for lag in facts.lags:
        if lag.is_growing and not lag.is_abandoned:
            what = f"{lag.messages} messages, {lag.seconds:.0f} s"
            yield Alert(
                WARNING,
                "lag_growing",
                f"consumer {lag.consumer} has no members, and its lag in topic {lag.topic} grows: {what}"
                if lag.is_idle
                else f"the lag of consumer {lag.consumer} in topic {lag.topic} grows every minute: {what}",
                lag.advice
                if lag.is_idle
                else "add members, up to one for each partition of the topic, or wait if this is a peak",
                _link("consumers", lag.consumer),
                "consumer",
                lag.consumer,
            )


def _blocked(facts: Facts) -> Iterator[Alert]:
    for topic, why in (facts.blocked or {}).items():
        yield Alert(
            WARNING,
            "trimming_blocked",
            f"topic {topic} keeps more than it should: {why}",
            "restart that consumer, or make it no longer vital (or important); a lease expires by itself. Until then the topic "
            "grows",
            _link("topics", topic),
            "topic",
            topic,
        )


def _pipelines(facts: Facts) -> Iterator[Alert]:
    for report in facts.pipelines:
        name, state = str(report.get("name", "")), report.get("state")
        error = str(report.get("last_error") or "").partition("\n")[0]
        if state in ("failed", "fenced"):
            yield Alert(
                CRITICAL if state == "failed" else WARNING,
                "pipeline_failed",
                f"pipeline {name} has {'failed' if state == 'failed' else 'been taken over by another copy'}: {error}",
                f"fix the cause and run it again; it resumes from what its target holds (penstock pipeline status {name})",
                _link("pipelines", name),
                "pipeline",
                name,
            )
        elif state == "restarting":
            yield Alert(
                WARNING,
                "pipeline_restarting",
                f"pipeline {name} is restarting after an error: {error}",
                f"see the error; it is retried automatically (penstock pipeline status {name})",
                _link("pipelines", name),
                "pipeline",
                name,
            )
        elif state in _PIPELINE_ALIVE and facts.now_ms - int(report.get("updated_ms") or facts.now_ms) > PIPELINE_SILENT_MS:
            yield Alert(
                WARNING,
                "pipeline_silent",
                f"pipeline {name} was last {state}, but has not reported for a minute",
                f"see whether its process on {report.get('host') or 'its host'} still runs, and start it again if not",
                _link("pipelines", name),
                "pipeline",
                name,
            )


def _clock(facts: Facts) -> Iterator[Alert]:
    if facts.clock_jump_s is not None:
        yield Alert(
            WARNING,
            "clock_jump",
            f"the machine's clock was set {'forward' if facts.clock_jump_s > 0 else 'back'} by {abs(facts.clock_jump_s):.1f} s",
            "let a time service (chrony, systemd-timesyncd) slew the clock; timestamps depend on it",
            "/settings",
        )
    if facts.age_clock_behind_s >= AGE_CLOCK_BEHIND_S:
        yield Alert(
            WARNING,
            "retention_behind_clock",
            f"the clock was set forward, or the node was off: messages age {facts.age_clock_behind_s / 3600:.1f} h behind it, so "
            "that a wrong clock deletes nothing",
            "set the clock if it is wrong; if it is right, confirm it (penstock storage confirm-clock), or wait as long as it is "
            "behind",
            "/settings",
        )


def _loop(facts: Facts) -> Iterator[Alert]:
    if facts.loop_lag_max_s >= LOOP_LAG_S:
        yield Alert(
            CRITICAL if facts.loop_lag_max_s >= LOOP_LAG_CRITICAL_S else WARNING,
            "event_loop_lag",
            f"the event loop was late by {facts.loop_lag_max_s:.1f} s within the last minute",
            "see whether the machine is short of CPU or memory (swapping), and what the log says about that time",
            "/",
        )


def _block(facts: Facts) -> Iterator[Alert]:
    if facts.loop_block_s is not None:
        yield Alert(
            CRITICAL if facts.loop_block_s >= LOOP_LAG_CRITICAL_S else WARNING,
            "event_loop_blocked",
            f"one call kept the node from answering any client for {facts.loop_block_s:.1f} s",
            "look for 'the event loop is blocked' in the log: it has the stack of that call; unless the whole machine "
            "stalled (swapping, a suspended process), report it as a bug with that stack",
            "/",
        )


def _descriptors(facts: Facts) -> Iterator[Alert]:
    if facts.lacks_descriptors:
        yield Alert(
            CRITICAL,
            "file_descriptors",
            "no file descriptor was left: connections were refused, and no file could be opened",
            "raise the limit of the process (ulimit -n, LimitNOFILE), or see which clients open so many connections",
            "/settings",
        )


def _listeners(facts: Facts) -> Iterator[Alert]:
    for name, why in facts.silent_listeners.items():
        yield Alert(
            CRITICAL,
            "listener_down",
            f"the {name} listener does not answer: {why}",
            "see the log; if it does not recover, restart the node: nothing acknowledged is lost",
            "/settings",
        )


def _guessing(facts: Facts) -> Iterator[Alert]:
    if facts.locked_out:
        yield Alert(
            WARNING,
            "password_guessing",
            f"{facts.locked_out} addresses are locked out after too many wrong passwords",
            "see in the log which users are tried from which addresses; a client with an old password looks the same",
            "/settings",
        )


def _link(page: str, name: str) -> str:
    return f"/{page}/{quote(name, safe='')}"
