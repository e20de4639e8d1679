"""A Produce request of the common shape: from the bytes of its frame to the batches of partitions, checked, and from what became
of them to the bytes of the reply, in one pass each and without an object a field.

     request:   api key 2 | version 2 | correlation id 4 | client id | transactional id | acks 2 | timeout 4 | topics
     topic:     name, or id 16 | partitions: index 4 | a record set, which is one batch
     response:  size 4 | correlation id 4 | topics | throttle time 4
     topic:     name, or id 16 | partitions
     partition: index 4 | error 2 | base offset 8 | append time 8 | log start offset 8 | errors of records | error message

Lengths and counts are numbers of two or four bytes before version 9, varints of one more from there on, with tagged fields behind
every structure. Requests that are unusual are left to the codecs of the protocol, which say what is wrong with them: those with
transactions, tagged fields, empty lists, or bytes behind the request. Batches that are compressed or fail a check are left to the
broker, as they are not checked here.
"""

from __future__ import annotations

from typing import Final

import cython

from penstock.core.checksum import crc32c

if cython.compiled:
    from cython.cimports.penstock.kernels.checksums import crc_at
    from cython.cimports.penstock.kernels.frame_fields import FrameFields
    from cython.cimports.penstock.kernels.record_scan import check_all
    from cython.cimports.penstock.kernels.varints import (
        cut,
        cut_bytes,
        lettered,
        put_bytes,
        put_number,
        signed_at,
        zeroed,
    )
else:
    from penstock.core.varint_buffers import put_bytes, put_number, signed_at
    from penstock.kernels.frame_fields import FrameFields
    from penstock.kernels.record_scan import MalformedRecordsError, check_records

    def crc_at(data: bytearray, start: int, end: int) -> int:
        """As the compiled kernel has it."""
        return crc32c(memoryview(data)[start:end])

    def cut(data: bytearray, at: int, end: int) -> bytearray:
        """As the compiled kernel has it."""
        return data[at:end]

    def cut_bytes(data: bytearray, at: int, end: int) -> bytes:
        """As the compiled kernel has it."""
        return bytes(data[at:end])

    def lettered(letter: int, number: int) -> bytes:
        """As the compiled kernel has it."""
        return letter.to_bytes(1, "big") + number.to_bytes(8, "big")

    def zeroed(size: int) -> bytearray:
        """As the compiled kernel has it."""
        return bytearray(size)

    def check_all(data: bytearray, at: int, end: int, count: int) -> tuple[int, int, int, int, int]:
        """As the compiled kernel has it."""
        try:
            return end, count, *check_records(memoryview(data)[:end], at, count)
        except MalformedRecordsError:
            return -1, 0, 0, 0, -1


COMPILED: Final[bool] = cython.compiled

COPIED_MAX: Final = 64 << 10  # a batch of so many bytes is a view of its frame, a smaller one a copy
RECORDS_MAX: Final = 16_384  # of a batch whose records are checked here

_PRODUCE = cython.declare(cython.longlong, 0)
_VERSION_MIN = cython.declare(cython.longlong, 3)
_START_OFFSET_FROM = cython.declare(cython.longlong, 5)
_ZSTD_FROM = cython.declare(cython.longlong, 7)
_MESSAGE_FROM = cython.declare(cython.longlong, 8)
_FLEXIBLE_FROM = cython.declare(cython.longlong, 9)
_BY_ID_FROM = cython.declare(cython.longlong, 13)
_VERSION_MAX = cython.declare(cython.longlong, 13)
_DUPLICATE_SEQUENCE_NUMBER = cython.declare(cython.longlong, 46)

_ID_SIZE = cython.declare(cython.Py_ssize_t, 16)
_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 61)
_CHECKED_FROM = cython.declare(cython.Py_ssize_t, 21)
_SHORT_MAX = cython.declare(cython.Py_ssize_t, 16 << 10)  # the checksum of more is sooner computed by the crc32c package
_COPIED_MAX = cython.declare(cython.Py_ssize_t, COPIED_MAX)
_RECORDS_MAX = cython.declare(cython.longlong, RECORDS_MAX)
_ZSTD = cython.declare(cython.longlong, 4)
_CODEC_MASK = cython.declare(cython.longlong, 0x07)
_TRANSACTIONAL = cython.declare(cython.longlong, 0x10)
_CONTROL = cython.declare(cython.longlong, 0x20)
_PRODUCER = cython.declare(cython.longlong, ord("k"))
_TIMESTAMP_MAX = cython.declare(cython.longlong, 9223372036854775807)

# What a reply takes at most, texts aside.
_FRAME_BYTES = cython.declare(cython.Py_ssize_t, 32)
_BATCH_BYTES = cython.declare(cython.Py_ssize_t, 64)


def source_name(producer_id: cython.longlong) -> bytes:
    """Returns the name of the source that a producer of Kafka's is."""
    return lettered(_PRODUCER, producer_id)


@cython.cclass
class ProduceFrame(FrameFields):
    """One Produce request: its batches while they are in flight, then its reply."""

    def parse(self, buffer: bytearray, begin: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
        """Returns whether these bytes are a request of the common shape. Otherwise this object is of no use."""
        count: cython.longlong
        self.at, self.end = begin, end
        self._left = 1
        self.batches = []
        self.throttle_time_ms = 0
        self.has_errors = self.has_views = self.is_done = self.is_refused = self.must_close = False
        self.span = None
        if begin < 0 or end > len(buffer) or self.number(buffer, 2) != _PRODUCE:
            return False
        self.version = self.number(buffer, 2)
        if self.version < _VERSION_MIN or self.version > _VERSION_MAX:
            return False
        self.is_flexible = self.version >= _FLEXIBLE_FROM
        self.correlation_id = self.number(buffer, 4)
        count = self.number(buffer, 2)
        self.client_id = None if count == -1 else self.text(buffer, count)
        self.pass_tags(buffer)
        if (self.varint(buffer) if self.is_flexible else self.number(buffer, 2) + 1) != 0:
            return False  # a transactional id
        self.acks = self.number(buffer, 2)
        self.timeout_ms = self.number(buffer, 4)
        count = self.count(buffer)
        if self.at < 0 or self.acks < -1 or self.acks > 1 or count < 1:
            return False
        while count > 0:
            if not self._parse_topic(buffer):
                return False
            count -= 1
        self.pass_tags(buffer)
        return self.at == end

    def queued(self) -> None:
        """All batches have been offered to their partitions. With the last outcome, here or later, `settled` is called."""
        self._left -= 1
        if self._left == 0:
            self.settled()

    def settled(self) -> None:
        """Called when the outcome of every batch is known."""
        raise NotImplementedError

    def answer(self, buffers: list | None = None, size: cython.Py_ssize_t = 0) -> None:
        """Completes the request with this reply of so many bytes, or with one that tells the outcomes; with acks=0 there is none.
        What becomes of the batches from now on is not told."""
        reply: bytes
        if buffers is None and self.acks != 0:
            reply = self.reply()
            buffers, size = [reply], len(reply)
        self._buffers = [] if buffers is None else buffers
        self._size = size
        self.batches = []
        self.is_done = True

    def encode(self) -> tuple:
        """Returns the reply as buffers, and its size."""
        return self._buffers, self._size

    @cython.cfunc
    def _parse_topic(self, buffer: bytearray) -> cython.bint:
        topic: object
        count: cython.longlong
        each: cython.longlong
        topic = self.id(buffer) if self.version >= _BY_ID_FROM else self.short_text(buffer)
        count = self.count(buffer)
        if self.at < 0 or count < 1:
            return False
        for each in range(count):
            if not self._parse_batch(buffer, topic, count if each == 0 else 0):
                return False
        self.pass_tags(buffer)
        return self.at >= 0

    @cython.cfunc
    def _parse_batch(self, buffer: bytearray, topic: object, partitions: cython.longlong) -> cython.bint:
        index: cython.longlong = self.number(buffer, 4)
        size: cython.longlong = self.count(buffer)
        at: cython.Py_ssize_t = self.at
        batch: ProducedBatch
        if at < 0 or size < _HEADER_SIZE or size > self.end - at:
            return False
        batch = ProducedBatch()
        if not batch.parse_header(buffer, at) or (batch.attributes == _ZSTD and self.version < _ZSTD_FROM):
            return False
        self.at = at + size
        self.pass_tags(buffer)
        if size < _COPIED_MAX:
            batch.data = cut(buffer, at, at + size)
        else:
            batch.data = memoryview(buffer)[at : at + size]
            self.has_views = True
        batch.is_checked = (
            batch.attributes == 0 and batch.check_header(buffer, at, size) and batch.check_records(buffer, at, size)
        )
        batch.request = self
        batch.topic = topic
        batch.partitions = partitions
        batch.index = index
        self.batches.append(batch)
        self._left += 1
        return True

    def reply(self) -> bytes:
        """Returns the whole frame of the response. Errors of single records are not in it."""
        topics: cython.longlong = 0
        left: cython.longlong = 0  # partitions of the topic
        size_max: cython.Py_ssize_t = _FRAME_BYTES
        at: cython.Py_ssize_t
        batch: ProducedBatch
        for batch in self.batches:
            topics += batch.partitions > 0
            size_max += batch.reply_size_max()
        # All is 0 that is not written, such as the counts of tagged fields.
        out: bytearray = zeroed(size_max)
        at = put_number(out, 4, self.correlation_id, 4) + self.is_flexible
        at = self.put_count(out, at, topics)
        for batch in self.batches:
            if left == 0:
                left = batch.partitions
                at = self._put_topic(out, at, batch)
            at = self._put_batch(out, at, batch)
            left -= 1
            if left == 0:
                at += self.is_flexible
        at = put_number(out, at, self.throttle_time_ms, 4) + self.is_flexible
        put_number(out, 0, at - 4, 4)
        return cut_bytes(out, 0, at)  # the event loop sends bytes at less cost than other buffers

    @cython.cfunc
    def _put_topic(self, out: bytearray, at: cython.Py_ssize_t, batch: ProducedBatch) -> cython.Py_ssize_t:
        if self.version >= _BY_ID_FROM:
            out[at : at + _ID_SIZE] = batch.topic
            at += _ID_SIZE
        else:
            at = self._put_text(out, at, batch.topic)
        return self.put_count(out, at, batch.partitions)

    @cython.cfunc
    def _put_batch(self, out: bytearray, at: cython.Py_ssize_t, batch: ProducedBatch) -> cython.Py_ssize_t:
        at = put_number(out, at, batch.index, 4)
        at = put_number(out, at, batch.error_code, 2)
        at = put_number(out, at, -1 if batch.error_code else batch.base_offset, 8)
        at = put_number(out, at, batch.log_append_time_ms, 8)
        if self.version >= _START_OFFSET_FROM:
            at = put_number(out, at, batch.log_start_offset, 8)
        if self.version >= _MESSAGE_FROM:
            at = self.put_count(out, at, 0)  # errors of single records
            if batch.error_message is not None:
                at = self._put_text(out, at, batch.error_message)
            elif self.is_flexible:
                at += 1
            else:
                at = put_number(out, at, -1, 2)
        return at + self.is_flexible

    @cython.cfunc
    def _put_text(self, out: bytearray, at: cython.Py_ssize_t, text: str) -> cython.Py_ssize_t:
        octets: bytes = text.encode()
        size: cython.Py_ssize_t = len(octets)
        at = self.put_short_count(out, at, size)
        return put_bytes(out, at, octets)


@cython.final
@cython.cclass
class ProducedBatch:
    """A checked batch on its way to a partition, what becomes of it, and its part of the reply.

    It is a batch as partitions take them, and told of its outcome as a future is.
    """

    @property
    def codec(self) -> cython.longlong:
        """What its records are compressed with."""
        return self.attributes & _CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction."""
        return self.attributes & _TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        """Whether it is a marker that ends a transaction, and not data."""
        return self.attributes & _CONTROL != 0

    def done(self) -> cython.bint:
        """Returns whether its outcome is known."""
        return self.is_settled

    def set_result(self, result: object) -> None:
        """The batch is stored."""
        self.stored_at(result.base_offset)

    def stored_at(self, base_offset: cython.longlong) -> None:
        """The batch is stored at this offset; -1 if it was stored before, at an offset that is no longer known."""
        self.base_offset = base_offset
        self.log_start_offset = self.partition.start_offset
        if self.base_offset < 0:
            # A duplicate of a batch whose offset is no longer known; clients treat it as stored.
            self.error_code = _DUPLICATE_SEQUENCE_NUMBER
            self.request.has_errors = True
        self._settle()

    def set_exception(self, error: object) -> None:
        """The batch was refused, or may not be stored."""
        self.error = error
        self.request.has_errors = True
        self._settle()

    @cython.cfunc
    def _settle(self) -> object:
        request: ProduceFrame = self.request
        self.is_settled = True
        self.request = self.partition = None  # no cycle keeps the request in memory
        request._left -= 1
        if request._left == 0:
            request.settled()
        return None

    @cython.cfunc
    def parse_header(self, buffer: bytearray, at: cython.Py_ssize_t) -> cython.bint:
        """Takes over what the header says. Returns False if it has attributes that a plain batch has not."""
        self.attributes = signed_at(buffer, at + 21, 2)
        self.base_timestamp = signed_at(buffer, at + 27, 8)
        self.max_timestamp = signed_at(buffer, at + 35, 8)
        self.producer_id = signed_at(buffer, at + 43, 8)
        self.producer_epoch = signed_at(buffer, at + 51, 2)
        self.base_sequence = signed_at(buffer, at + 53, 4)
        self.messages = signed_at(buffer, at + 57, 4)
        self.base_offset = signed_at(buffer, at, 8)
        self.is_checked = self.is_settled = False
        self.earliest_ms = self.latest_ms = 0
        self.keyless = -1
        self.error_code = 0
        self.error = self.error_message = self.partition = None
        self.log_append_time_ms = self.log_start_offset = -1
        return self.attributes >= 0 and self.attributes <= _ZSTD

    @cython.cfunc
    def check_header(self, buffer: bytearray, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
        """Returns whether the header is that of a batch which clients may send, and fits the bytes; as the broker checks it."""
        if self.base_offset != 0 or (self.producer_id >= 0 and self.base_sequence < 0):
            return False
        if signed_at(buffer, at + 8, 4) != size - 12 or signed_at(buffer, at + 16, 1) != 2:
            return False
        if self.messages < 1 or self.messages > _RECORDS_MAX or signed_at(buffer, at + 23, 4) != self.messages - 1:
            return False
        checksum: cython.longlong = signed_at(buffer, at + 17, 4) & 0xFFFFFFFF
        if size <= _SHORT_MAX:
            return crc_at(buffer, at + _CHECKED_FROM, at + size) == checksum
        return crc32c(memoryview(self.data)[_CHECKED_FROM:]) == checksum

    @cython.cfunc
    def check_records(self, buffer: bytearray, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
        """Returns whether the records are as many as the header says, each whole and numbered through, at times of 64 bits."""
        view: cython.const[cython.uchar][::1] = buffer
        end: cython.Py_ssize_t = at + size
        stop: cython.Py_ssize_t
        least: cython.longlong
        most: cython.longlong
        keyless: cython.Py_ssize_t
        count: cython.Py_ssize_t = self.messages
        if size < _COPIED_MAX:
            stop, _, least, most, keyless = check_all(view, at + _HEADER_SIZE, end, count)
        else:
            with cython.nogil:
                stop, _, least, most, keyless = check_all(view, at + _HEADER_SIZE, end, count)
        if stop != end:
            return False
        if most > 0 and self.base_timestamp > _TIMESTAMP_MAX - most:
            return False
        if least < 0 and self.base_timestamp < -_TIMESTAMP_MAX - 1 - least:
            return False
        self.earliest_ms = self.base_timestamp + least
        self.latest_ms = self.base_timestamp + most
        self.keyless = keyless
        return True

    @cython.cfunc
    def reply_size_max(self) -> cython.Py_ssize_t:
        """Returns how many bytes it takes in a reply at most."""
        size: cython.Py_ssize_t = _BATCH_BYTES
        if self.partitions:
            size += 4 * len(self.topic)
        if self.error_message is not None:
            size += 4 * len(self.error_message)
        return size
