"""The measurements of a node: sampled once a second, surveyed in the background, served to scrapes and the console."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

from penstock.broker import BrokerReading
from penstock.core.clock import Clock
from penstock.core.periodic import cancel_tasks
from penstock.core.probe import RequestProbe, Tracing
from penstock.interconnect import Interconnect
from penstock.placement import Placement
from penstock.server.metrics.alerts import BLOCK_SHOWN_S, CLOCK_JUMP_SHOWN_S, Alert, ClusterTrouble, Facts, LagFacts, alerts_of
from penstock.server.metrics.descriptor_watch import DescriptorWatch
from penstock.server.metrics.flows import TopicFlows, TopicRates
from penstock.server.metrics.history import FLOW_METRICS, HISTORY_S, PIPELINE_METRICS, History, Key, SeriesQuery
from penstock.server.metrics.history_file import FILE_NAME, pack_history, read_history, write_history
from penstock.server.metrics.lag_trend import LagTrend
from penstock.server.metrics.loop_watch import LoopWatch
from penstock.server.metrics.loop_watchdog import LoopWatchdog
from penstock.server.metrics.metric import Samples, Tier
from penstock.server.metrics.quantile import quantile_s, summed_counts
from penstock.server.metrics.readings import read_all
from penstock.server.metrics.sources import Gateway, Sources
from penstock.server.metrics.survey import Survey, SurveyResult

log = logging.getLogger(__name__)

STARTING, SERVING, DRAINING = "starting", "serving", "draining"
TICK_S: Final = 1.0
SAVE_S: Final = 60.0
ALERTS_EVERY: Final = 5  # ticks
TOPIC_HISTORIES: Final = 50
LAG_HISTORIES: Final = 50
PIPELINE_HISTORIES: Final = 20
PIPELINE_ALIVE_MS: Final = 15_000  # one that runs reports more often than this
SURVEY_AGE_S: Final = 0.25  # the maximum age of a survey in a scrape, on a small node
LISTENERS_AGE_S: Final = 1.0
LISTENERS_WAIT_S: Final = 0.8  # a readiness probe must be answered within a second
STUCK_S: Final = 30.0
_NODE_KEYS: Final = tuple(
    Key(metric) for metric in (*FLOW_METRICS, "request_ms_p99", "fsync_ms_p99", "loop_lag_ms", "storage_used")
)

_REPORTED: Final = ("rows_per_s", "lag_rows", "last_batch_ms", "dead_letters")  # fields of reports, as PIPELINE_METRICS


class HttpProbe(RequestProbe):
    """The requests of the HTTP listener."""

    __slots__ = ()

    def is_prompt(self, api: str) -> bool:
        return not api.endswith("/tail")  # which lasts as long as someone looks


class Observatory:
    """One for each node. Make it first, `watch` gateways as they start, `serve` when all is up, `drain`, then `stop`."""

    def __init__(self, *, clock: Clock) -> None:
        self.clock = clock
        self.phase = STARTING
        self.role = ""  # of this node in its cluster, if it is part of one
        self.standby_trouble: Callable[[], list[str]] | None = None  # of a node that only stores: why it is not ready
        self.disk_troubles: Callable[[], Sequence[str]] = (
            tuple  # of a cluster's disks here: others must not stop before they serve
        )
        self.cluster_troubles: Callable[[], Sequence[ClusterTrouble]] = tuple  # with other nodes, or what they agree by
        self.placement: Callable[[], Placement | None] = lambda: None  # of a node that leads a cluster
        self.started_s = clock.wall()
        self.probe = HttpProbe()  # of the HTTP listener
        self.count_connections: Callable[[], int] = int  # of the same, once it listens
        self.sources: Sources | None = None
        self.interconnect: Interconnect | None = None  # of a node that is one of several
        self.survey: Survey | None = None
        self.loop_watch = LoopWatch(clock)
        self.descriptors = DescriptorWatch(clock)
        self.flows = TopicFlows()
        self.alerts: list[Alert] = []
        self._history = History()
        self._history_path: Path | None = None
        self._restored_keys: list[Key] = []
        self._trend = LagTrend()
        self._reading: BrokerReading | None = None
        self._gateways: list[tuple[str, Gateway]] = [("http", self)]
        self._lag_keys: list[tuple[str, str]] = []
        self._request_counts: list[int] = []
        self._sync_counts: list[int] = []
        self._ticks = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._watching: list[asyncio.Task[None]] = []  # from before anything is started to when all is stopped
        self._watchdog: LoopWatchdog | None = None

    # Its life.

    def watch_loop(self) -> None:
        """Watch the event loop and file descriptors; called before anything starts."""
        self._watching.append(asyncio.create_task(self.loop_watch.run(), name="loop-watch"))
        self._watching.append(asyncio.create_task(self.descriptors.run(), name="descriptor-watch"))
        self.loop_watch.turned_s = self.clock.monotonic()
        self._watchdog = LoopWatchdog(self.loop_watch, self.clock)
        self._watchdog.start()

    async def stop_watching_loop(self) -> None:
        """Stop that; called after everything has stopped."""
        if self._watchdog is not None:
            await asyncio.to_thread(self._watchdog.stop)
        await cancel_tasks(self._watching)

    def trace(self, tracing: Tracing) -> None:
        """Turn tracing on."""
        self.probe.tracing = tracing

    def watch(self, name: str, gateway: Gateway) -> None:
        """Register a gateway, whose requests are counted under this name and traced."""
        self._gateways.append((name, gateway))
        gateway.probe.tracing = self.probe.tracing

    def unwatch(self, gateway: Gateway) -> None:
        """A gateway has stopped."""
        self._gateways = [known for known in self._gateways if known[1] is not gateway]

    async def restore_history(self, folder: Path) -> None:
        """Go on with the history that an earlier process left in a folder, and keep it there from now on."""
        self._history_path = folder / FILE_NAME
        restored = await asyncio.to_thread(read_history, self._history_path, int(self.clock.wall() * 1000))
        if restored is not None:
            self._history = restored
            self._restored_keys = restored.keys

    def serve(self, sources: Sources) -> None:
        """Start sampling; called when the node is up."""
        self.sources = sources
        sources.gateways = self._gateways
        self._reading = sources.broker.reading()
        self.survey = Survey(sources.broker, self._reading, sources.read_pipelines, sources.read_damage)
        self._history.keep([*_NODE_KEYS, *self._restored_keys])
        self.phase = SERVING
        self._spawn(self._tick_for_ever(), "observatory")
        self._spawn(self.survey.run(self._surveyed), "survey")
        self._spawn(self._save_for_ever(), "history")
        if sources.checks is not None:
            self._spawn(sources.checks.run(), "listener-checks")

    def drain(self) -> None:
        """Report not ready from now on; called before the node stops."""
        self.phase = DRAINING

    async def stop(self) -> None:
        """Stop sampling."""
        if self.sources is not None and self.sources.checks is not None:
            await self.sources.checks.stop()
        await cancel_tasks(self._tasks)
        self._tasks.clear()
        if self.sources is not None:
            await self._save_history()
        # The layers below may be closed after this.
        self.sources = self.survey = self._reading = None

    # What it is asked.

    @property
    def connections(self) -> int:
        """How many clients the HTTP listener has."""
        return self.count_connections()

    def trouble(self) -> list[str]:
        """Why the node is not ready; empty if it is."""
        if self.standby_trouble is not None:
            return self.standby_trouble()
        if self.phase == STARTING:
            return ["the node is starting"]
        if self.phase == DRAINING or self.sources is None or self._reading is None:
            return ["the node is stopping"]
        reasons: list[str] = []
        state = self.sources.state()
        if state in ("lost", "read-only"):
            reasons.append(f"the storage is {state}")
        if (trouble := self._reading.trouble()) is not None:
            reasons.append(f"the broker does not serve: {trouble}")
        missing = sorted(self.sources.expected - self.sources.listeners.keys())
        if missing:
            reasons.append(f"not listening: {', '.join(missing)}")
        reasons += self.disk_troubles()
        reasons += (f"the {name} listener does not answer: {why}" for name, why in self.sources.silent_listeners().items())
        return reasons

    def damage(self) -> list[str]:
        """Damaged partitions and disks; they do not affect readiness. Where a disk is mounted is not told: no user is needed."""
        lost = [] if self.sources is None else self.sources.unknown_losses()
        if self.survey is None:
            return lost
        return [
            *lost,
            *self.survey.last.damaged.values(),
            *(disk.told(f"VDisk {disk.vdisk}") for disk in self.survey.last.damaged_disks),
        ]

    async def check_listeners(self) -> None:
        """Check that every listener answers, unless that was checked recently."""
        checks = None if self.sources is None else self.sources.checks
        if self.phase == SERVING and checks is not None:
            await checks.refresh(LISTENERS_AGE_S, LISTENERS_WAIT_S)

    def illness(self) -> str | None:
        """Why the process is not healthy; None if it is."""
        silent_s = self.clock.monotonic() - self.loop_watch.turned_s
        if self.phase == SERVING and silent_s > STUCK_S:
            return f"the event loop has not turned for {silent_s:.0f} s"
        return None

    async def scrape(self, tier: Tier) -> Samples:
        """All current samples of a tier."""
        if self.survey is not None and self.phase == SERVING:
            await self.survey.refresh(SURVEY_AGE_S)
        if self._reading is not None:
            self.flows.refresh(self._reading.flows(), self.clock.monotonic())
        return read_all(self, tier)

    def topic_rates(self, name: str) -> TopicRates:
        """How much of a topic is written and read each second."""
        return self.flows.rates_of(name)

    def history(
        self,
        metric: str,
        topic: str | None = None,
        consumer: str | None = None,
        *,
        from_ms: int | None = None,
        to_ms: int | None = None,
        points: int | None = None,
    ) -> dict[str, object]:
        """The history of a metric. Raises InvalidRequestError if it has none."""
        query = SeriesQuery(metric, topic or None, consumer or None, from_ms, to_ms, points)
        return self._history.query(query, int(self.clock.wall() * 1000))

    # What it does by itself.

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.append(asyncio.create_task(work, name=name))

    async def _tick_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            # A late tick is not repeated: the history stores its timestamp.
            due = max(due + TICK_S, loop.time())
            await asyncio.sleep(due - loop.time())
            try:
                self.tick()
            except Exception:
                # A failure of monitoring must not stop the node.
                log.exception("the node could not watch itself this second")

    async def _save_for_ever(self) -> None:
        while True:
            await asyncio.sleep(SAVE_S)
            await self._save_history()

    async def _save_history(self) -> None:
        if self._history_path is None:
            return
        try:
            await asyncio.to_thread(write_history, self._history_path, pack_history(self._history))
        except OSError as error:
            log.warning("the history of metrics is not saved to %s: %s", self._history_path, error.strerror)

    def tick(self) -> None:
        """Sample everything; called once a second."""
        assert self.sources is not None
        lag_s = self.loop_watch.turn_second()
        if self._reading is not None:
            self.flows.update(self._reading.flows(), self.clock.monotonic())
        if self._ticks % ALERTS_EVERY == 0:
            self.alerts = alerts_of(self._facts())
            self._choose_series()
        self._ticks += 1
        self._history.tick(int(self.clock.wall() * 1000), self._values(lag_s))

    def _values(self, lag_s: float) -> dict[Key, float]:
        assert self.sources is not None
        values = {
            Key("request_ms_p99"): self._request_p99_s() * 1000,
            Key("fsync_ms_p99"): self._sync_p99_s() * 1000,
            Key("loop_lag_ms"): lag_s * 1000,
            Key("storage_used"): float(self.sources.used()),
        }
        values.update({Key(metric): rate for metric, rate in zip(FLOW_METRICS, self.flows.rates, strict=True)})
        for name in self.flows.busiest(TOPIC_HISTORIES):
            rates = self.flows.rates_of(name)
            values.update({Key(metric, name): rate for metric, rate in zip(FLOW_METRICS, rates, strict=True)})
        lags = {} if self.survey is None else self.survey.last.by_pair
        for pair in self._lag_keys:
            if pair in lags:
                values[Key("lag_messages", pair[1], pair[0])] = lags[pair].messages
                values[Key("lag_seconds", pair[1], pair[0])] = lags[pair].seconds
        values.update(self._pipeline_values())
        return values

    def _pipeline_values(self) -> dict[Key, float]:
        """What pipelines have reported lately."""
        reports = [] if self.survey is None else self.survey.last.pipelines[:PIPELINE_HISTORIES]
        now_ms = self.clock.wall() * 1000
        return {
            Key(metric, consumer=str(report["name"])): float(report[field])
            for report in reports
            for metric, field in zip(PIPELINE_METRICS, _REPORTED, strict=True)
            if now_ms - (report["updated_ms"] or 0) < PIPELINE_ALIVE_MS and report[field] is not None
        }

    def _request_p99_s(self) -> float:
        assert self.sources is not None
        prompt = [
            durations for _, probe in self.sources.probes() for api, _, durations in probe.requests() if probe.is_prompt(api)
        ]
        counts = summed_counts(prompt)
        p99 = quantile_s(_grown(counts, self._request_counts), 0.99)
        self._request_counts = counts
        return p99

    def _sync_p99_s(self) -> float:
        assert self.sources is not None
        counts = summed_counts(durations for _, durations in self.sources.syncs())
        p99 = quantile_s(_grown(counts, self._sync_counts), 0.99)
        self._sync_counts = counts
        return p99

    def _surveyed(self, result: SurveyResult) -> None:
        self._trend.note(self.clock.monotonic(), result.lags)

    def _choose_series(self) -> None:
        """Choose the topics and consumers with a history: existing ones are kept while they are among the busiest."""
        survey = SurveyResult(0.0) if self.survey is None else self.survey.last
        lags = survey.lags[:LAG_HISTORIES]
        kept = [pair for pair in self._lag_keys if pair in survey.by_pair]
        # The largest come first, also before those that were large once.
        largest = [(lag.consumer, lag.topic) for lag in lags[: LAG_HISTORIES // 2]]
        self._lag_keys = list(dict.fromkeys([*largest, *kept, *((lag.consumer, lag.topic) for lag in lags)]))[:LAG_HISTORIES]
        topics = [Key(metric, name) for name in self.flows.busiest(TOPIC_HISTORIES) for metric in FLOW_METRICS]
        consumers = [
            Key(metric, topic, consumer) for consumer, topic in self._lag_keys for metric in ("lag_messages", "lag_seconds")
        ]
        pipelines = [
            Key(metric, consumer=str(report["name"]))
            for report in survey.pipelines[:PIPELINE_HISTORIES]
            for metric in PIPELINE_METRICS
        ]
        self._history.keep([*_NODE_KEYS, *topics, *consumers, *pipelines, *self._kept_restored()])

    def _kept_restored(self) -> list[Key]:
        """Series from before the restart, while anything in them is recent enough to be shown and their topics exist."""
        if self._restored_keys and self.clock.wall() - self.started_s > HISTORY_S:
            self._restored_keys = []
        if self._restored_keys and self.sources is not None:
            topics = {topic.name for topic in self.sources.broker.catalog.topics()}
            self._restored_keys = [key for key in self._restored_keys if not key.topic or key.topic in topics]
        return self._restored_keys

    def _lacked_descriptors(self) -> bool:
        """Whether the process recently ran out of file descriptors."""
        last_s = self.descriptors.last_s
        return last_s is not None and self.clock.monotonic() - last_s < BLOCK_SHOWN_S

    def _facts(self) -> Facts:
        assert self.sources is not None
        survey = SurveyResult(0.0) if self.survey is None else self.survey.last
        jump, block = self.loop_watch.last_jump, self.loop_watch.last_block
        is_recent = jump is not None and self.clock.monotonic() - jump[0] < CLOCK_JUMP_SHOWN_S
        now_ms = int(self.clock.wall() * 1000)
        return Facts(
            now_ms=now_ms,
            group_state=self.sources.state(),
            cluster_troubles=self.cluster_troubles(),
            locked_out=self.sources.broker.sign_in.locked_out(),
            silent_listeners=self.sources.silent_listeners(),
            disks=self.sources.disks(),
            lags=[
                LagFacts(
                    lag.consumer,
                    lag.topic,
                    lag.messages,
                    lag.seconds,
                    lag.retention_share,
                    self._trend.is_growing(lag),
                    max(now_ms - lag.used_ms, 0) / 1000,
                )
                for lag in survey.lags
                if lag.messages
            ],
            unknown_losses=self.sources.unknown_losses(),
            damaged_disks=survey.damaged_disks,
            damaged=survey.damaged,
            blocked=survey.blocked,
            pipelines=survey.pipelines,
            clock_jump_s=jump[1] if jump is not None and is_recent else None,
            age_clock_behind_s=0.0 if self._reading is None else self._reading.age_clock_behind_s(),
            loop_lag_max_s=self.loop_watch.worst_s,
            lacks_descriptors=self._lacked_descriptors(),
            loop_block_s=block[1] if block is not None and self.clock.monotonic() - block[0] < BLOCK_SHOWN_S else None,
        )


def _grown(counts: list[int], before: list[int]) -> list[int]:
    """The increase since the last tick; zero at first, since earlier events may be of any time."""
    if not before:
        return [0] * len(counts)
    return [max(now - then, 0) for now, then in zip(counts, before, strict=True)]
