"""The load of a schema registry with many subjects: CPU and memory.

Memory is only clean in a fresh process, so filling and loading run as
`python -m bench.schema_load fill|load DIRECTORY SUBJECTS`. Every version is a batch of its own, as a registry writes them.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import uvloop

from bench.measure import Row, Setting, limit_row
from bench.million import resident_mb
from penstock.blob import BlobStorage, Erasure, GroupConfig
from penstock.broker import Broker, BrokerOptions
from penstock.broker.route import Route
from penstock.broker.schema_registry import OwnSchemaPartition, SchemaRegistry, SchemaValue, prepare_log, schemas_topic
from penstock.broker.schema_registry.records import SCHEMA, RecordKey, unpack_schema
from penstock.core.clock import SystemClock
from penstock.core.memory import collect_seldom, keep_freed_memory
from penstock.core.record_format import framed, packed_record
from penstock.queue import WriteResult

ROOT = Path(__file__).resolve().parents[1]
SUBJECTS, VERSIONS = 10_000, 50
IN_FLIGHT = 200
LOAD_GOAL_S, MEMORY_GOAL_MB = 3, 300
FIELDS = [{"name": f"{kind}_field", "type": kind} for kind in ("long", "string", "double", "boolean", "bytes")]


async def rows(setting: Setting) -> list[Row]:
    """In a quick run a tenth of the subjects, and the figures scaled up."""
    subjects = SUBJECTS // 10 if setting.quick else SUBJECTS
    scale = SUBJECTS / subjects
    directory = setting.directory("schema-load")
    await _in_process("fill", directory, subjects)
    loads = [await _in_process("load", directory, subjects) for _ in range(setting.rounds(15) // 3 or 1)]
    note = f"scaled from {subjects:,}" if scale > 1 else f"{min(one['s'] for one in loads):.1f} s at best"
    raw = f"decoding alone {min(one['raw_s'] for one in loads) * scale:.2g} s"
    name = f"registry: load of {SUBJECTS:,} subjects with {VERSIONS} versions"
    cpu, memory = [one["cpu_s"] * scale for one in loads], [one["rss_mb"] * scale for one in loads]
    return [
        limit_row(f"{name}, CPU", cpu, unit="s", goal=LOAD_GOAL_S, beside=raw),
        limit_row(f"{name}, memory", memory, unit="MB", goal=MEMORY_GOAL_MB, beside=note),
    ]


async def _in_process(task: str, directory: Path, subjects: int) -> dict[str, float]:
    arguments = ["-m", "bench.schema_load", task, str(directory), str(subjects)]
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"{task} of {subjects} subjects failed; its error is above")
    result: dict[str, float] = json.loads(out)
    return result


def _value(subject: int, version: int, schema_id: int) -> SchemaValue:
    added = {"name": f"added_{version}", "type": ["null", "string"], "default": None}
    schema = {"type": "record", "name": f"Order{subject}", "namespace": "com.example.shop", "fields": [*FIELDS, added]}
    return SchemaValue(f"topic-{subject}-value", version, schema_id, json.dumps(schema, separators=(",", ":")))


async def fill(broker: Broker, subjects: int) -> dict[str, float]:
    """Write the topic."""
    await prepare_log(broker)
    topic = schemas_topic(broker)
    assert topic is not None, "it was created"
    route = Route(topic, broker.partition(topic, 0))
    loop = asyncio.get_running_loop()
    now_ms = int(time.time() * 1000)
    stored: list[asyncio.Future[WriteResult]] = []
    for version in range(1, VERSIONS + 1):
        for subject in range(subjects):
            value = _value(subject, version, (version - 1) * subjects + subject + 1)
            record = packed_record(0, msgspec.json.encode(value), key=RecordKey(SCHEMA, value.subject, version).pack())
            stored.append(loop.create_future())
            broker.begin_produce(route, framed(record, 1, (now_ms, now_ms)), stored[-1])
            if len(stored) == IN_FLIGHT:
                await asyncio.gather(*stored)
                stored = []
    await asyncio.gather(*stored)
    return {}


async def load(broker: Broker, subjects: int) -> dict[str, float]:
    """Read it; the time, and the memory that the registry took. Beside, the time of decoding as many records."""
    raw = msgspec.json.encode(_value(1, 1, 1))
    started = time.process_time()
    for _ in range(subjects * VERSIONS):
        unpack_schema(raw)
    raw_s = time.process_time() - started
    registry = SchemaRegistry(OwnSchemaPartition(broker))
    gc.collect()
    before = resident_mb()
    wall, cpu = time.perf_counter(), time.process_time()
    state = await registry.state()
    result = {"s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu, "raw_s": raw_s}
    if len(state.subjects()) != subjects or state.next_offset != subjects * VERSIONS:
        raise RuntimeError(f"{len(state.subjects())} subjects were found, not {subjects}")
    return {**result, "rss_mb": resident_mb() - before}


async def _on_broker(task: str, directory: Path, subjects: int) -> Any:
    # The cache of blobs has a limit of its own; what it takes is not the registry's.
    options = BrokerOptions(cache_bytes=8 << 20)
    storage = BlobStorage([GroupConfig(0, Erasure.NONE, (directory,))], clock=SystemClock(), random=Random(1))
    broker = await Broker.start(storage, options, clock=SystemClock(), random=Random(2))
    try:
        return await (fill(broker, subjects) if task == "fill" else load(broker, subjects))
    finally:
        await broker.stop()
        await storage.close()


if __name__ == "__main__":
    keep_freed_memory()
    collect_seldom()
    print(json.dumps(uvloop.run(_on_broker(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))))
