"""A Fetch request: from the bytes of its frame to the partitions it names, and from what they hold to the bytes of the reply, in
one pass each and without an object a field.

     request:   api key 2 | version 2 | correlation id 4 | client id | replica 4 | max wait 4 | min bytes 4 | max bytes 4
                | isolation level 1 | session id 4 | session epoch 4 | topics | forgotten topics | rack
     topic:     name, or id 16 | partitions
     partition: index 4 | leader epoch 4 | offset 8 | last fetched epoch 4 | start offset 8 | max bytes 4
     response:  size 4 | correlation id 4 | throttle time 4 | error 2 | session id 4 | topics
     topic:     name, or id 16 | partitions
     partition: index 4 | error 2 | high watermark 8 | last stable offset 8 | start offset 8
                | aborted transactions: producer id 8, first offset 8 | preferred replica 4 | records
                | diverging epoch: epoch 4, end offset 8 | current leader: node 4, epoch 4
     response:  | addresses of nodes

Lengths and counts are numbers of two or four bytes before version 12, varints of one more from there on, with tagged fields
behind every structure; the diverging epoch, the current leader and the addresses of nodes are such. Not every version has every
field. Requests that are unusual, as those of followers or with tagged fields, are left to the codecs of the protocol, which say
what is wrong with them; the reply to any is written here.
"""

from __future__ import annotations

from typing import Final

import cython

if cython.compiled:
    from cython.cimports.penstock.kernels.fetched_partition import FetchedPartition
    from cython.cimports.penstock.kernels.frame_fields import FrameFields
    from cython.cimports.penstock.kernels.varints import put_number, put_varint_in
else:
    from penstock.core.varint_buffers import put_number
    from penstock.core.varint_buffers import put_varint as put_varint_in
    from penstock.kernels.fetched_partition import FetchedPartition
    from penstock.kernels.frame_fields import FrameFields

COMPILED: Final[bool] = cython.compiled

_FETCH = cython.declare(cython.longlong, 1)
_VERSION_MIN = cython.declare(cython.longlong, 4)
_START_OFFSET_FROM = cython.declare(cython.longlong, 5)
_SESSION_FROM = cython.declare(cython.longlong, 7)
_LEADER_EPOCH_FROM = cython.declare(cython.longlong, 9)
_ZSTD_FROM = cython.declare(cython.longlong, 10)
_RACK_FROM = cython.declare(cython.longlong, 11)
_FLEXIBLE_FROM = cython.declare(cython.longlong, 12)
_BY_ID_FROM = cython.declare(cython.longlong, 13)
_ENDPOINTS_FROM = cython.declare(cython.longlong, 16)
_NO_REPLICA_FROM = cython.declare(cython.longlong, 15)
_VERSION_MAX = cython.declare(cython.longlong, 18)
_READ_COMMITTED = cython.declare(cython.longlong, 1)
_NO_EPOCH = cython.declare(cython.longlong, -1)
_NOTHING_TO_READ = cython.declare(cython.longlong, -1)
_ZSTD = cython.declare(cython.longlong, 4)

# What a reply takes at most, texts and lists aside.
_FRAME_BYTES = cython.declare(cython.Py_ssize_t, 40)
_PARTITION_BYTES = cython.declare(cython.Py_ssize_t, 80)
_ABORTED_BYTES = cython.declare(cython.Py_ssize_t, 17)


@cython.cclass
class FetchFrame(FrameFields):
    """One Fetch request: its partitions, then its reply."""

    max_wait_ms = cython.declare(cython.longlong, visibility="public")
    min_bytes = cython.declare(cython.longlong, visibility="public")
    max_bytes = cython.declare(cython.longlong, visibility="public")
    is_committed = cython.declare(cython.bint, visibility="public")  # whether it is to see only what is decided
    session_id = cython.declare(cython.longlong, visibility="public")
    session_epoch = cython.declare(cython.longlong, visibility="public")
    parts = cython.declare(list, visibility="public")
    forgotten = cython.declare(list, visibility="public")  # keys of partitions
    readable = cython.declare(list, visibility="public")  # partitions with something to read, once they were looked at
    # For its owner, here because setting them in each new object takes longer.
    size = cython.declare(cython.longlong, visibility="public")
    is_done = cython.declare(cython.bint, visibility="public")
    is_refused = cython.declare(cython.bint, visibility="public")
    must_close = cython.declare(cython.bint, visibility="public")
    has_files = cython.declare(cython.bint, visibility="public")
    waited_s = cython.declare(cython.double, visibility="public")
    span = cython.declare(object, visibility="public")
    poll = cython.declare(object, visibility="public")
    endpoints = cython.declare(object, visibility="public")  # the encoded addresses of nodes that the reply names as leaders
    _is_told: cython.bint

    def begin(self) -> None:
        """Sets what every request begins with."""
        self.parts = []
        self.forgotten = []
        self.readable = []
        self.size = self.session_id = 0
        self.session_epoch = -1
        self.is_done = self.is_refused = self.must_close = self.has_files = self._is_told = False
        self.waited_s = 0.0
        self.span = self.poll = self.endpoints = None

    def parse(self, buffer: bytearray, begin: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
        """Returns whether these bytes are a request of the common shape. Otherwise this object is of no use."""
        count: cython.longlong
        self.at, self.end = begin, end
        self.begin()
        if begin < 0 or end > len(buffer) or self.number(buffer, 2) != _FETCH:
            return False
        self.version = self.number(buffer, 2)
        if self.version < _VERSION_MIN or self.version > _VERSION_MAX:
            return False
        self.is_flexible = self.version >= _FLEXIBLE_FROM
        self.correlation_id = self.number(buffer, 4)
        count = self.number(buffer, 2)
        self.client_id = None if count == -1 else self.text(buffer, count)
        self.pass_tags(buffer)
        if self.version < _NO_REPLICA_FROM and self.number(buffer, 4) != -1:
            return False
        self.max_wait_ms = self.number(buffer, 4)
        self.min_bytes = self.number(buffer, 4)
        self.max_bytes = self.number(buffer, 4)
        self.is_committed = self.number(buffer, 1) == _READ_COMMITTED
        if self.version >= _SESSION_FROM:
            self.session_id = self.number(buffer, 4)
            self.session_epoch = self.number(buffer, 4)
        count = self.count(buffer)
        while count > 0:
            if not self._parse_topic(buffer):
                return False
            count -= 1
        if self.at < 0 or count < 0:
            return False
        return self._parse_rest(buffer) and self.at == end

    def look(self, routes: dict) -> list | None:
        """Finds out what the partitions hold for the client, those that are in `routes` and ask for nothing unusual. Returns
        the others, if there are any."""
        others: list = None
        part: FetchedPartition
        self.readable = []
        for part in self.parts:
            part.reset()
            route: object = routes.get(part.key)
            if (
                route is None
                or (part.leader_epoch >= 0 and part.leader_epoch != route.epoch)
                or part.last_epoch >= 0
                or (self.version < _ZSTD_FROM and route.codec == _ZSTD)
                or route.partition.tablet.stop_cause is not None
                or not part.look(route, self.is_committed)
            ):
                part.reset()
                if others is None:
                    others = []
                others.append(part)
            elif part.until != _NOTHING_TO_READ:
                self.readable.append(part)
        return others

    def watch(self) -> None:
        """Has every partition tell this request of its next write."""
        part: FetchedPartition
        self._is_told = False
        for part in self.parts:
            if part.partition is not None:
                part.partition.arrivals.waiting.add(self)

    def unwatch(self) -> None:
        """Hears of no more writes."""
        part: FetchedPartition
        for part in self.parts:
            if part.partition is not None:
                part.partition.arrivals.waiting.discard(self)

    def done(self) -> cython.bint:
        """Returns whether it was told of a write since it watches."""
        return self._is_told

    def set_result(self, result: object) -> None:
        """Tells it of a write, or to answer with what there is."""
        self._is_told = True
        self.told()

    def told(self) -> None:
        """Called when it was told of a write."""
        raise NotImplementedError

    def held(self) -> cython.longlong:
        """Returns how many bytes its partitions hold now."""
        part: FetchedPartition
        total: cython.longlong = 0
        for part in self.parts:
            if part.partition is not None:
                total += part.partition.size
        return total

    def sum_up(self) -> None:
        """Adds up what was read, and whether a partition has an error."""
        part: FetchedPartition
        self.size = 0
        self.is_refused = False
        for part in self.parts:
            self.size += part.size
            if part.error_code or part.diverging is not None:
                self.is_refused = True

    def reply(
        self,
        session_id: cython.longlong = 0,
        has_session: cython.bint = False,
        is_incremental: cython.bint = False,
        error_code: cython.longlong = 0,
        throttle_time_ms: cython.longlong = 0,
    ) -> tuple:
        """Returns the whole frame of the response as buffers, and its size. In the session that it has, an incremental reply
        names only partitions of which the client does not know all."""
        topics: dict = {}
        listed: list
        part: FetchedPartition
        size_max: cython.Py_ssize_t = _FRAME_BYTES + (0 if self.endpoints is None else len(self.endpoints))
        self.is_flexible = self.version >= _FLEXIBLE_FROM
        for part in self.parts:
            if has_session and not part.is_news() and is_incremental:
                continue
            listed = topics.get(part.topic)
            if listed is None:
                listed = topics[part.topic] = []
                size_max += 4 * len(part.topic) + 16
            listed.append(part)
            size_max += _PARTITION_BYTES
            if part.aborted:
                size_max += _ABORTED_BYTES * len(part.aborted)
        # All is 0 that is not written, such as the counts of tagged fields.
        out: bytearray = bytearray(size_max)
        at: cython.Py_ssize_t = put_number(out, 4, self.correlation_id, 4) + self.is_flexible
        at = put_number(out, at, throttle_time_ms, 4)
        if self.version >= _SESSION_FROM:
            at = put_number(out, at, error_code, 2)
            at = put_number(out, at, session_id, 4)
        at = self.put_count(out, at, len(topics))
        cuts: list = []  # where records come in
        filled: list = []
        size: cython.longlong = 0
        for topic, listed in topics.items():
            at = self._put_topic(out, at, topic, len(listed))
            for part in listed:
                at = self._put_head(out, at, part)
                if part.size:
                    cuts.append(at)
                    filled.append(part)
                    size += part.size
                at = self._put_tags(out, at, part)
            at += self.is_flexible
        at = self._put_endpoints(out, at)
        del out[at:]
        size += at
        put_number(out, 0, size - 4, 4)
        return self._spliced(out, cuts, filled), size

    @cython.cfunc
    def _spliced(self, out: bytearray, cuts: list, filled: list) -> list:
        """The buffers of a reply: what was written, with the records of each partition where they come in."""
        buffers: list = []
        part: FetchedPartition
        if not cuts:
            return [out]
        view: object = memoryview(out)
        begin: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t
        for end, part in zip(cuts, filled):  # noqa: B905 - two lists that grow together; compiled, a keyword makes it slower
            buffers.append(view[begin:end])
            buffers.extend(part.records)
            begin = end
        if begin < len(out):
            buffers.append(view[begin:])
        return buffers

    @cython.cfunc
    def _topic(self, buffer: bytearray) -> object:
        """The next topic, by name or id."""
        return self.short_text(buffer) if self.version < _BY_ID_FROM else self.id(buffer)

    @cython.cfunc
    def _parse_topic(self, buffer: bytearray) -> cython.bint:
        topic: object = self._topic(buffer)
        count: cython.longlong = self.count(buffer)
        index: cython.longlong
        leader_epoch: cython.longlong
        offset: cython.longlong
        last_epoch: cython.longlong
        if self.at < 0 or count < 0:
            return False
        while count > 0:
            index = self.number(buffer, 4)
            leader_epoch = self.number(buffer, 4) if self.version >= _LEADER_EPOCH_FROM else _NO_EPOCH
            offset = self.number(buffer, 8)
            last_epoch = self.number(buffer, 4) if self.is_flexible else _NO_EPOCH
            if self.version >= _START_OFFSET_FROM:
                self.number(buffer, 8)  # which only followers have
            size_max: cython.longlong = self.number(buffer, 4)
            self.pass_tags(buffer)
            if self.at < 0:
                return False
            self.parts.append(FetchedPartition(topic, index, offset, size_max, leader_epoch, last_epoch))
            count -= 1
        self.pass_tags(buffer)
        return self.at >= 0

    @cython.cfunc
    def _parse_rest(self, buffer: bytearray) -> cython.bint:
        """What comes behind the topics."""
        topics: cython.longlong = self.count(buffer) if self.version >= _SESSION_FROM else 0
        count: cython.longlong
        if topics < 0:
            return False
        while topics > 0:
            topic: object = self._topic(buffer)
            count = self.count(buffer)
            if self.at < 0 or count < 0:
                return False
            while count > 0:
                self.forgotten.append((topic, self.number(buffer, 4)))
                if self.at < 0:
                    return False
                count -= 1
            self.pass_tags(buffer)
            topics -= 1
        if self.version >= _RACK_FROM:
            self.short_text(buffer)
        self.pass_tags(buffer)
        return self.at >= 0

    @cython.cfunc
    def _put_topic(self, out: bytearray, at: cython.Py_ssize_t, topic: object, count: cython.longlong) -> cython.Py_ssize_t:
        octets: bytes = topic if self.version >= _BY_ID_FROM else topic.encode()
        size: cython.Py_ssize_t = len(octets)
        if self.version < _BY_ID_FROM:
            at = self.put_short_count(out, at, size)
        out[at : at + size] = octets
        return self.put_count(out, at + size, count)

    @cython.cfunc
    def _put_head(self, out: bytearray, at: cython.Py_ssize_t, part: FetchedPartition) -> cython.Py_ssize_t:
        """All of a partition up to its records."""
        at = put_number(out, at, part.index, 4)
        at = put_number(out, at, part.error_code, 2)
        at = put_number(out, at, part.high_watermark, 8)
        at = put_number(out, at, part.stable_offset, 8)
        if self.version >= _START_OFFSET_FROM:
            at = put_number(out, at, part.start_offset, 8)
        at = self.put_count(out, at, -1 if part.aborted is None else len(part.aborted))
        if part.aborted:
            for _, producer_id, first_offset in part.aborted:
                at = put_number(out, at, producer_id, 8)
                at = put_number(out, at, first_offset, 8) + self.is_flexible
        if self.version >= _RACK_FROM:
            at = put_number(out, at, -1, 4)  # the preferred replica
        return self.put_count(out, at, part.size)

    @cython.cfunc
    def _put_endpoints(self, out: bytearray, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The tagged fields of the response: the addresses of nodes, if there are any."""
        endpoints: bytes = self.endpoints
        if endpoints is None or self.version < _ENDPOINTS_FROM:
            return at + self.is_flexible
        out[at] = 1  # one field: number 0
        at = put_varint_in(out, at + 2, len(endpoints))
        out[at : at + len(endpoints)] = endpoints
        return at + len(endpoints)

    @cython.cfunc
    def _put_tags(self, out: bytearray, at: cython.Py_ssize_t, part: FetchedPartition) -> cython.Py_ssize_t:
        """The tagged fields of a partition: it is diverging, or has another leader, never both."""
        if not self.is_flexible or (part.diverging is None and part.leader is None):
            return at + self.is_flexible
        out[at] = 1  # one field
        if part.diverging is not None:
            epoch, end_offset = part.diverging
            out[at + 2] = 13  # number 0, 13 bytes
            at = put_number(out, at + 3, epoch, 4)
            return put_number(out, at, end_offset, 8) + 1
        node_id, epoch = part.leader
        out[at + 1] = 1  # number 1, 9 bytes
        out[at + 2] = 9
        at = put_number(out, at + 3, node_id, 4)
        return put_number(out, at, epoch, 4) + 1
