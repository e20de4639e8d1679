"""`Client`: the same as `AsyncClient` without an event loop. The coroutines are the same; blocking sockets never suspend them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from penstock.client.administration import AsyncGroups, AsyncPipelines, AsyncTopics
from penstock.client.client import DEFAULT_BOOTSTRAP, ClientCore, draft_of, make_identity
from penstock.client.consumption import Messages
from penstock.client.messages import Content, Headers, MessageDraft, Start, WrittenMessage, encoded_headers
from penstock.client.session import CallerThread, ConnectionSettings
from penstock.client.streams import AsyncStreams, StreamMessages
from penstock.client.views import ConfigEntry, Group, GroupDetail, OffsetMoves, Partitions, Pipeline, Subject, Topic
from penstock.kafka.client import BlockingNetwork, finish


class Topics:
    """The topics of a cluster."""

    def __init__(self, coroutines: AsyncTopics) -> None:
        self._coroutines = coroutines

    def list(self, *, search: str = "", internal: bool = False) -> list[Topic]:
        """Return topics by name: those with `search` in their names, internal ones only if asked for."""
        return finish(self._coroutines.list(search=search, internal=internal))

    def describe(self, name: str) -> Topic:
        """Return one topic."""
        return finish(self._coroutines.describe(name))

    def partitions(self, name: str) -> Partitions:
        """Return the partitions of a topic with their offsets."""
        return finish(self._coroutines.partitions(name))

    def config(self, name: str) -> dict[str, ConfigEntry]:
        """Return the configuration of a topic, by key."""
        return finish(self._coroutines.config(name))

    def create(
        self, name: str, *, partitions: int | None = None, config: Mapping[str, object] | None = None, exist_ok: bool = False
    ) -> Topic:
        """Create a topic. Durations and sizes in `config` may be written as `"7d"` and `"10GiB"`. With `exist_ok`, a topic that
        exists is left as it is."""
        return finish(self._coroutines.create(name, partitions=partitions, config=config, exist_ok=exist_ok))

    def alter(self, name: str, set: Mapping[str, object] | None = None, unset: Iterable[str] = ()) -> dict[str, ConfigEntry]:
        """Set some keys of a topic's configuration and put others back to their defaults, all or nothing."""
        return finish(self._coroutines.alter(name, set, unset))

    def add_partitions(self, name: str, total: int) -> Topic:
        """Give a topic more partitions. Keys go to other partitions from then on."""
        return finish(self._coroutines.add_partitions(name, total))

    def trim(self, name: str, before: Mapping[int, int]) -> dict[int, int]:
        """Delete the messages before an offset of each partition. Returns where the partitions start now."""
        return finish(self._coroutines.trim(name, before))

    def delete(self, name: str) -> None:
        """Delete a topic with all its messages."""
        return finish(self._coroutines.delete(name))


class Groups:
    """The consumers of a cluster: Kafka's groups, YT consumers and durable consumers of streams."""

    def __init__(self, coroutines: AsyncGroups) -> None:
        self._coroutines = coroutines

    def list(self, *, search: str = "") -> list[Group]:
        """Return groups by name: those with `search` in their names."""
        return finish(self._coroutines.list(search=search))

    def describe(self, name: str) -> GroupDetail:
        """Return a group with its members and every committed offset."""
        return finish(self._coroutines.describe(name))

    def reset_offsets(
        self, name: str, topic: str, to: Start, *, partitions: Iterable[int] | None = None, dry_run: bool = False
    ) -> OffsetMoves:
        """Set the committed offsets of a group that has no members. Returns what changed, or with `dry_run` what would."""
        return finish(self._coroutines.reset_offsets(name, topic, to, partitions=partitions, dry_run=dry_run))

    def delete(self, name: str) -> None:
        """Delete a group that has no members, with its committed offsets."""
        return finish(self._coroutines.delete(name))


class Pipelines:
    """Pipelines that have ever run."""

    def __init__(self, coroutines: AsyncPipelines) -> None:
        self._coroutines = coroutines

    def list(self, *, search: str = "") -> list[Pipeline]:
        """Return the last report of every pipeline, by name."""
        return finish(self._coroutines.list(search=search))

    def describe(self, name: str) -> Pipeline:
        """Return the last report of a pipeline."""
        return finish(self._coroutines.describe(name))


class Streams:
    """Subjects, their messages and durable consumers."""

    def __init__(self, coroutines: AsyncStreams) -> None:
        self._coroutines = coroutines

    def list(self, *, search: str = "") -> list[Subject]:
        """Return the subjects by name."""
        return finish(self._coroutines.list(search=search))

    def publish(self, subject: str, data: Content, *, headers: Mapping[str, str] | None = None) -> int:
        """Publish one message of up to 64 MiB. Returns its sequence; the message is stored then."""
        return finish(self._coroutines.publish(subject, data, headers=headers))

    def upload(self, subject: str, path: Path | str, *, headers: Mapping[str, str] | None = None) -> int:
        """Publish a file of any size. Returns its sequence."""
        return finish(self._coroutines.upload(subject, path, headers=headers))

    def download(self, sequence: int, path: Path | str) -> int:
        """Save the payload of a message in a file, which takes its place when all is in it. Returns its size."""
        return finish(self._coroutines.download(sequence, path))

    def read(self, subject: str, *, start: int = 0, limit: int = 1000) -> StreamMessages:
        """Return messages from a sequence on. `subject` may be a pattern: `orders.*`, `orders.>`."""
        return finish(self._coroutines.read(subject, start=start, limit=limit))

    def fetch(self, subject: str, durable: str, *, limit: int = 100) -> StreamMessages:
        """Return what a durable consumer has not acknowledged; `ack` moves it on."""
        return finish(self._coroutines.fetch(subject, durable, limit=limit))

    def ack(self, subject: str, durable: str, sequence: int) -> None:
        """Acknowledge a message, and without a rule of delivery all before it."""
        return finish(self._coroutines.ack(subject, durable, sequence))

    def last_sequence(self, subject: str) -> int:
        """Return the last readable sequence of a subject."""
        return finish(self._coroutines.last_sequence(subject))


class Client:
    """A client of one cluster, for scripts: every call returns when it is done. One thread at a time may use it.

    `bootstrap` is the address of one or several nodes, `host:port,host:port`. `user` and `password` sign in (by SCRAM, or within
    TLS as they are), `tls_ca` is the file of the certificates to trust and turns TLS on. `http` and `stream` are the addresses of
    the admin API and of streams; the node tells them if they are left out. `timeout_s` bounds each call with its retries.
    """

    def __init__(
        self,
        bootstrap: str = DEFAULT_BOOTSTRAP,
        *,
        user: str | None = None,
        password: str | None = None,
        tls_ca: str | None = None,
        http: str | None = None,
        stream: str | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        settings = ConnectionSettings(bootstrap, make_identity(user, password, tls_ca), http, stream, timeout_s)
        self._core = ClientCore(settings, BlockingNetwork(), CallerThread())
        self.topics = Topics(AsyncTopics(self._core.session))
        self.groups = Groups(AsyncGroups(self._core.session))
        self.streams = Streams(AsyncStreams(self._core.session))
        self.pipelines = Pipelines(AsyncPipelines(self._core.session))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Leave all groups and hang up."""
        finish(self._core.close())

    def produce(
        self,
        topic: str,
        value: Content,
        *,
        key: Content = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> WrittenMessage:
        """Write one message; it is stored, once, when this returns. For many at a time, `produce_many` is much faster."""
        draft = MessageDraft(key, value, encoded_headers(headers), partition, timestamp_ms)
        return finish(self._core.write_one(topic, draft))

    def produce_many(self, topic: str, messages: Iterable[MessageDraft | Content]) -> int:
        """Write many messages, values alone or drafts with keys and more. Returns how many; they are stored then."""
        return finish(self._core.write(topic, map(draft_of, messages)))

    def consume(
        self,
        topic: str,
        *,
        start: Start = "earliest",
        partitions: Iterable[int] | None = None,
        group: str | None = None,
        follow: bool = False,
    ) -> Messages:
        """Read the messages of a topic: up to its present end, or with `follow` for ever. With `group`, partitions are shared
        with its other members, committed offsets come first, and `start` is for partitions without one."""
        return Messages(self._core.consume(topic, start=start, partitions=partitions, group=group, follow=follow))

    def admin(self, method: str, path: str, body: object = None) -> Any:
        """Call any path of the admin API, such as `GET /overview`, and return its JSON."""
        return finish(self._core.session.call(method, path, body))
