"""Leases keep records that a query has planned to read from being deleted. Plain Kafka has none; queries run without them there.

A stream has a process on the driver while it runs: a thread there renews the lease and moves it forward, and when the process
dies the lease expires soon. A batch read has no such process: Spark plans its partitions in one that may exit at once, and does
not report when the last task is done. Its lease has the longest duration the broker grants, which covers the wait for a free
core; tasks renew it while they read, and it expires ten minutes after the last of them.
"""

from __future__ import annotations

import logging
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, NamedTuple

from penstock.core.errors import PenstockError
from penstock.kafka.client import (
    Address,
    BlockingClient,
    BrokerRefusedError,
    ClientOptions,
    RequestRefusedError,
    TopicInfo,
    TopicPartition,
)
from penstock.kafka.protocol import ZERO_UUID, errors, private_keys
from penstock.kafka.protocol.private_leases import (
    LeasedPartition,
    LeasedTopic,
    ReleaseLeaseRequest,
    ReleaseLeaseResponse,
    RenewLeaseRequest,
    RenewLeaseResponse,
    TakeLeaseRequest,
    TakeLeaseResponse,
)

BATCH_S: Final = 600.0
STREAM_S: Final = 120.0
RENEWALS: Final = 4  # within the time that a lease is granted for: some may fail
MOVE_PAUSE_S: Final = 1.0
JOIN_S: Final = 1.0  # for a renewal in flight when its task ends
REQUEST_TIMEOUT_S: Final = 10.0  # a lease is useful, not required

Offsets = Mapping[TopicPartition, int]

_log = logging.getLogger(__name__)


class LeasedPositions(NamedTuple):
    """The next offsets a stream reads, and the metadata of their topics."""

    positions: dict[TopicPartition, int]
    topics: dict[str, TopicInfo]


class NoLeasesError(BrokerRefusedError):
    """The broker is a Kafka, or an older Penstock."""

    code = "no_leases"


def new_lease_id() -> bytes:
    """Return a unique lease id."""
    return secrets.token_bytes(16)


def take_lease(
    client: BlockingClient, lease_id: bytes, duration_s: float, positions: Offsets, topics: Mapping[str, TopicInfo]
) -> dict[TopicPartition, int]:
    """Take or move a lease, in one attempt. Returns the earliest offsets of its partitions under the lease."""
    has_ids = all(topics[topic_partition.topic].id != ZERO_UUID for topic_partition in positions)
    if not has_ids or client.any_node().version_of(private_keys.TAKE_LEASE) < 0:
        raise NoLeasesError("the broker knows no leases")
    by_topic: dict[str, list[LeasedPartition]] = {}
    for topic_partition, offset in positions.items():
        by_topic.setdefault(topic_partition.topic, []).append(LeasedPartition(partition=topic_partition.partition, offset=offset))
    request = TakeLeaseRequest(
        lease_id=lease_id,
        owner=f"{client.options.client_id} on {socket.gethostname()}",
        duration_ms=int(duration_s * 1000),
        topics=[LeasedTopic(topic_id=topics[name].id, partitions=partitions) for name, partitions in by_topic.items()],
    )
    answer = client.call(private_keys.TAKE_LEASE, request, TakeLeaseResponse)
    if answer.error_code:
        raise RequestRefusedError("the broker gives no lease", answer.error_code, answer.error_message or "")
    names = {topics[name].id: name for name in by_topic}
    return {
        TopicPartition(names[topic.topic_id], partition.partition): partition.offset
        for topic in answer.topics
        for partition in topic.partitions
    }


def try_take_lease(
    client: BlockingClient, lease_id: bytes, duration_s: float, positions: Offsets, topics: Mapping[str, TopicInfo]
) -> dict[TopicPartition, int] | None:
    """Take a lease, retrying retriable errors. Returns None if there is none: the query then runs without, and data loss is
    reported when it is read."""
    if not positions:
        return None
    try:
        return client.retry(lambda: take_lease(client, lease_id, duration_s, positions, topics))
    except NoLeasesError:
        return None
    except PenstockError as error:
        _log.warning("going on without a lease, so retention may be faster than the query: %s", error)
        return None


def is_late(wanted: Offsets, begins: Offsets) -> bool:
    """Whether records were deleted between listing the offsets and taking the lease; the caller then lists them again."""
    return any(begins[topic_partition] > offset for topic_partition, offset in wanted.items())


class LeaseKeeper:
    """Keeps the lease of a stream: call `hold` with each new position and `release` at the end."""

    def __init__(self, options: ClientOptions, duration_s: float = STREAM_S) -> None:
        self._client = BlockingClient(replace(options, request_timeout_s=min(options.request_timeout_s, REQUEST_TIMEOUT_S)))
        self._duration_s = duration_s
        self._id = new_lease_id()
        self._wanted = LeasedPositions({}, {})
        self._taking = threading.Lock()  # requests are sent in the order of the positions
        self._has_moved = threading.Event()
        self._is_stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_needless = False

    def hold(
        self, client: BlockingClient, positions: Offsets, topics: Mapping[str, TopicInfo]
    ) -> dict[TopicPartition, int] | None:
        """Hold everything from these offsets on. If that extends the lease, it is extended when this returns, and the earliest
        offsets are returned. If the stream only moved forward, the lease follows in the background and None is returned."""
        wanted = LeasedPositions(
            {topic_partition: offset for topic_partition, offset in positions.items() if topic_partition.topic in topics},
            dict(topics),
        )
        if wanted.positions == self._wanted.positions or self._is_needless:
            return None
        is_held = self._covers(wanted.positions)
        self._wanted = wanted
        begins = None
        if is_held:
            self._has_moved.set()
        else:
            try:
                with self._taking:
                    begins = client.retry(lambda: take_lease(client, self._id, self._duration_s, *wanted))
            except NoLeasesError:
                self._is_needless = True
                return None
            except PenstockError as error:
                _log.warning("going on without a lease for now, so retention may be faster than the query: %s", error)
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
            self._thread.start()
        return begins

    def cover(self, client: BlockingClient, positions: Offsets, topics: Mapping[str, TopicInfo]) -> None:
        """Extend the lease to these offsets, if it does not cover them."""
        if not self._covers(positions):
            self.hold(client, {**self._wanted.positions, **positions}, {**self._wanted.topics, **topics})

    def release(self) -> None:
        """Release the lease. If that fails, it expires."""
        self._is_stopped.set()
        self._has_moved.set()
        if self._thread is None:
            return
        self._thread.join(REQUEST_TIMEOUT_S)
        try:
            if not self._thread.is_alive():
                self._client.call(private_keys.RELEASE_LEASE, ReleaseLeaseRequest(lease_id=self._id), ReleaseLeaseResponse)
        except PenstockError as error:
            _log.info("a lease is left to expire: %s", error)
        finally:
            self._client.close()

    def _covers(self, positions: Offsets) -> bool:
        held = self._wanted.positions
        return all(topic_partition in held and held[topic_partition] <= offset for topic_partition, offset in positions.items())

    def _keep(self) -> None:
        """Renew the lease in time, and move it when the position has changed, with a pause in between."""
        held: LeasedPositions | None = None
        while not self._is_stopped.wait(MOVE_PAUSE_S):
            self._has_moved.wait(self._duration_s / RENEWALS)
            self._has_moved.clear()
            if self._is_stopped.is_set():
                return
            try:
                if held is not self._wanted or not self._renew():
                    held = None
                    with self._taking:
                        wanted = self._wanted
                        take_lease(self._client, self._id, self._duration_s, *wanted)
                    held = wanted
            except PenstockError as error:
                _log.info("the lease is not renewed: %s", error)

    def _renew(self) -> bool:
        """Renew the lease unchanged, even if one of its topics was deleted. Returns False if it has expired."""
        answer = self._client.call(private_keys.RENEW_LEASE, RenewLeaseRequest(lease_id=self._id), RenewLeaseResponse)
        return answer.error_code == errors.NONE


@contextmanager
def renewing(client: BlockingClient, leader: Address, lease_id: bytes) -> Iterator[None]:
    """Renew the lease of a batch read while one of its tasks reads."""
    if not lease_id:
        yield
        return
    now = time.monotonic()
    if now - _renewed.get(lease_id, float("-inf")) > BATCH_S / RENEWALS / 2:
        _renewed.clear()  # a process reads for one query at a time, mostly
        _renewed[lease_id] = now
        _renew(client, leader, lease_id)
    is_over = threading.Event()
    known = (is_over, client.options, leader, lease_id)
    thread = threading.Thread(target=_renew_until, args=known, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(JOIN_S)


# When the leases of batch reads were renewed last by this process.
_renewed: dict[bytes, float] = {}


def _renew_until(is_over: threading.Event, options: ClientOptions, leader: Address, lease_id: bytes) -> None:
    while not is_over.wait(BATCH_S / RENEWALS):
        client = BlockingClient(options)
        _renew(client, leader, lease_id)
        client.close()


def _renew(client: BlockingClient, leader: Address, lease_id: bytes) -> None:
    """Renew a lease, in one attempt; if it fails, the next one is early enough."""
    try:
        connection = client.connect(leader)
        answer = connection.call(private_keys.RENEW_LEASE, RenewLeaseRequest(lease_id=lease_id), RenewLeaseResponse)
        if answer.error_code:
            _log.info("a lease is not renewed: %s", answer.error_message)
    except PenstockError as error:
        client.forget(leader)
        _log.info("a lease is not renewed: %s", error)
