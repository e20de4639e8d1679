"""The schema registry on a simulated broker: ids, versions and deletions, over restarts and crashes at any step."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from penstock.broker import TopicConfig
from penstock.broker.errors import InvalidTopicNameError, PartitionUnavailableError
from penstock.broker.schema_registry import (
    LATEST,
    LogChangedError,
    NewSchema,
    OwnSchemaPartition,
    Reference,
    RegistryError,
    SchemaRegistry,
    TopicIds,
)
from penstock.broker.schema_registry.records import RecordKey
from penstock.broker.schema_registry.topic_log import SchemaLog
from penstock.broker.schema_rules import SchemaRule, SubjectStrategy
from penstock.testing.sim_loop import ProcessDiedError, run_simulation
from tests.sim_broker import SimBroker


def avro(*fields: str, name: str = "R") -> NewSchema:
    """A record of integers."""
    of_fields = [{"name": field, "type": "int", "default": 0} for field in fields]
    return NewSchema(json.dumps({"type": "record", "name": name, "fields": of_fields}))


def on_registry(scenario: Callable[[SimBroker, SchemaRegistry], Awaitable[None]]) -> None:
    """Run a scenario on an empty registry."""

    async def run() -> None:
        host = await SimBroker().start()
        await host.do(scenario(host, SchemaRegistry(OwnSchemaPartition(host.broker))))  # type: ignore[arg-type]
        await host.stop()

    run_simulation(run(), seed=0)


async def refused(work: Awaitable[object]) -> int:
    """The number of the error that something ends with."""
    with pytest.raises(RegistryError) as raised:
        await work
    return raised.value.number


def test_one_schema_has_one_id_in_all_subjects_and_versions_count_per_subject() -> None:
    async def scenario(host: SimBroker, registry: SchemaRegistry) -> None:
        first = await registry.register("a-value", avro("x"))
        again = await registry.register("a-value", avro("x"))
        other = await registry.register("b-value", avro("x"))
        second = await registry.register("a-value", avro("x", "y"))
        assert [(value.id, value.version) for value in (first, again, other, second)] == [(1, 1), (1, 1), (1, 1), (2, 2)]
        assert (await registry.version("a-value", LATEST)).version == 2
        fresh = SchemaRegistry(OwnSchemaPartition(host.broker))  # as after a restart: from the topic alone
        assert await fresh.versions("a-value") == [1, 2]
        assert (await fresh.register("c-value", avro("x", "y"))).id == 2

    on_registry(scenario)


def test_contexts_have_ids_of_their_own() -> None:
    async def scenario(host: SimBroker, registry: SchemaRegistry) -> None:
        await registry.register("a", avro("x"))
        await registry.register("a", avro("x", "y"))
        assert (await registry.register(":.other:a", avro("x", "y"))).id == 1
        assert json.loads((await registry.with_id(1, ".other")).schema)["fields"][1]["name"] == "y"

    on_registry(scenario)


def test_a_deleted_version_is_found_by_id_until_it_is_deleted_for_good_and_its_id_is_not_given_again() -> None:
    async def scenario(host: SimBroker, registry: SchemaRegistry) -> None:
        await registry.register("a", avro("x"))
        assert await refused(registry.delete_subject("a", permanent=True)) == 40405
        assert await registry.delete_subject("a", permanent=False) == [1]
        assert await refused(registry.version("a", 1)) == 40401
        assert await refused(registry.delete_subject("a", permanent=False)) == 40404
        assert (await registry.with_id(1, ".")).schema
        assert (await registry.register("a", avro("x"))).version == 2
        assert await registry.delete_subject("a", permanent=False) == [2]
        assert await registry.delete_subject("a", permanent=True) == [1, 2]
        assert await refused(registry.with_id(1, ".")) == 40403
        fresh = SchemaRegistry(OwnSchemaPartition(host.broker))
        assert (await fresh.register("a", avro("z"))).id == 2

    on_registry(scenario)


def test_a_version_that_others_refer_to_is_not_deleted() -> None:
    async def scenario(host: SimBroker, registry: SchemaRegistry) -> None:
        await registry.register("address", avro("x", name="Address"))
        person = '{"type":"record","name":"P","fields":[{"name":"home","type":"Address"}]}'
        new = NewSchema(person, references=(Reference("Address", "address", LATEST),))
        value = await registry.register("person", new)
        assert value.references == (Reference("Address", "address", 1),)
        assert await registry.referenced_by("address", 1) == [value.id]
        assert await refused(registry.delete_subject("address", permanent=False)) == 42206
        missing = NewSchema(person, references=(Reference("Address", "nowhere", 1),))
        assert await refused(registry.register("person", missing)) == 42201

    on_registry(scenario)


def test_levels_decide_which_versions_count_and_in_which_direction() -> None:
    async def scenario(host: SimBroker, registry: SchemaRegistry) -> None:
        needed = NewSchema('{"type":"record","name":"R","fields":[{"name":"x","type":"int"}]}')
        empty = NewSchema('{"type":"record","name":"R","fields":[]}')
        await registry.register("a", needed)
        await registry.register("a", empty)
        assert await refused(registry.register("a", NewSchema('"string"'))) == 409
        level, conflict = await registry.check("a", needed, LATEST)
        assert (level, conflict is None) == ("BACKWARD", False)
        await registry.set_config("a", {"compatibility": "FORWARD"})
        assert (await registry.check("a", needed, None))[1] is None
        await registry.set_config(None, {"compatibility": "FULL_TRANSITIVE"})
        await registry.set_config("a", None)
        assert (await registry.check("a", empty, None))[1] is not None  # the first version needs x
        await registry.set_config("a", {"compatibility": "NONE"})
        assert (await registry.register("a", NewSchema('"string"'))).version == 3
        assert await refused(registry.set_config("a", {"compatibility": "SIDEWAYS"})) == 42203

    on_registry(scenario)


def test_modes_forbid_changes_and_let_ids_be_imported() -> None:
    async def scenario(host: SimBroker, registry: SchemaRegistry) -> None:
        await registry.set_mode(None, "READONLY")
        assert await refused(registry.register("a", avro("x"))) == 42205
        await registry.set_mode(None, None)
        imported = NewSchema('"int"', id=70, version=7)
        assert await refused(registry.register("a", imported)) == 42205
        await registry.set_mode("a", "IMPORT")
        value = await registry.register("a", imported)
        assert (value.id, value.version) == (70, 7)
        assert await refused(registry.register("a", NewSchema('"long"', id=70, version=8))) == 42205
        await registry.set_mode("a", "READWRITE")
        assert (await registry.register("b", NewSchema('"long"'))).id == 71
        assert await refused(registry.set_mode("b", "IMPORT")) == 42205

    on_registry(scenario)


def test_the_topic_is_the_brokers_own_and_records_of_other_registries_are_read() -> None:
    async def scenario(host: SimBroker, registry: SchemaRegistry) -> None:
        await registry.register("a", avro("x"))
        with pytest.raises(InvalidTopicNameError):
            host.broker.route("_schemas", 0)
        with pytest.raises(InvalidTopicNameError):
            await host.broker.delete_topic("_schemas")
        state = await registry.state()
        value = '{"subject":"k","version":3,"id":9,"references":null,"schema":"\\"int\\"","deleted":false,"guid":"g","ts":1}'
        state.apply(state.next_offset, b'{"keytype":"SCHEMA","subject":"k","version":3,"magic":1}', value.encode())
        assert state.live("k")[3].id == 9
        state.apply(state.next_offset, b'{"keytype":"DELETE_SUBJECT","subject":"k","magic":0}', b'{"subject":"k","version":3}')
        state.apply(state.next_offset, b"noise", b"noise")
        assert (state.live("k"), state.unreadable) == ({}, 1)

    on_registry(scenario)


def test_ids_are_known_without_waiting_once_the_topic_was_read_also_if_it_is_empty() -> None:
    async def scenario(host: SimBroker, registry: SchemaRegistry) -> None:
        assert registry.loaded_state().next_offset == 0  # there is no topic yet
        await host.broker.internal_topic("_schemas")
        with pytest.raises(PartitionUnavailableError):
            registry.loaded_state()
        await registry.state()
        assert registry.loaded_state().next_offset == 0
        await registry.register("t-value", avro("x"))
        rule = SchemaRule(None, SubjectStrategy(by_topic=True, by_record=False))
        allowed = TopicIds(registry).allowed("t", rule)
        assert (allowed.key, list(allowed.value if allowed.value is not None else [])) == (None, [1])

    on_registry(scenario)


def test_an_imported_id_that_was_free_again_is_parsed_as_what_it_is_now() -> None:
    async def scenario(host: SimBroker, registry: SchemaRegistry) -> None:
        await registry.register("a", NewSchema('"int"'))
        assert (await registry.check("a", NewSchema('"long"'), LATEST))[1] is None
        await registry.delete_subject("a", permanent=False)
        await registry.delete_subject("a", permanent=True)
        await registry.set_mode("a", "IMPORT")
        await registry.register("a", NewSchema('"string"', id=1, version=1))
        await registry.set_mode("a", None)
        assert (await registry.check("a", NewSchema('"long"'), LATEST))[1] is not None

    on_registry(scenario)


def test_a_schema_whose_id_went_to_another_by_an_import_gets_an_id_of_its_own() -> None:
    async def scenario(host: SimBroker, registry: SchemaRegistry) -> None:
        await registry.register("a", NewSchema('"int"'))
        await registry.delete_subject("a", permanent=False)
        await registry.delete_subject("a", permanent=True)
        await registry.set_mode("a", "IMPORT")
        await registry.register("a", NewSchema('"string"', id=1, version=1))
        await registry.set_mode("a", None)
        assert (await registry.register("b", NewSchema('"int"'))).id == 2
        assert (await registry.register("c", NewSchema('"string"'))).id == 1

    on_registry(scenario)


def test_an_id_that_four_bytes_do_not_hold_is_unreadable() -> None:
    async def scenario(host: SimBroker, registry: SchemaRegistry) -> None:
        state = await registry.state()
        for number, schema_id in enumerate((1 << 31, -1, (1 << 31) - 1), 1):
            key = RecordKey("SCHEMA", "s", number).pack()
            value = {"subject": "s", "version": number, "id": schema_id, "schema": '"int"'}
            state.apply(state.next_offset, key, json.dumps(value).encode())
        assert {number: version.id for number, version in state.versions("s").items()} == {3: (1 << 31) - 1}
        assert state.unreadable == 2

    on_registry(scenario)


def test_a_schemas_topic_that_a_client_made_is_compacted_from_the_first_registration_on() -> None:
    async def scenario(host: SimBroker, registry: SchemaRegistry) -> None:
        await host.broker.catalog.create("_schemas", 1, TopicConfig({"retention.ms": "1000"}))
        await host.broker._host_all()
        await registry.register("a", avro("x"))
        assert host.broker.catalog.topic("_schemas").config["cleanup.policy"] == "compact"

    on_registry(scenario)


def test_registries_that_change_one_log_at_the_same_time_give_each_schema_one_id() -> None:
    async def scenario(host: SimBroker, first: SchemaRegistry) -> None:
        registries = [first, *(SchemaRegistry(OwnSchemaPartition(host.broker)) for _ in range(3))]
        await first.set_config(None, {"compatibility": "BACKWARD"})  # creates the topic
        fields = [f"f{number}" for number in range(12)]
        registrations = [
            registry.register("s", avro("x", field))
            for at, registry in enumerate(registries)
            for field in (*fields[at:], *fields[:at])
        ]
        values = await asyncio.gather(*registrations)
        by_text = {value.schema: {other.id for other in values if other.schema == value.schema} for value in values}
        assert sorted(by_text.values(), key=min) == [{number} for number in range(1, len(fields) + 1)]
        assert await first.versions("s") == list(range(1, len(fields) + 1))

    on_registry(scenario)


def test_a_change_that_was_decided_on_what_is_out_of_date_is_not_stored() -> None:
    async def scenario(host: SimBroker, registry: SchemaRegistry) -> None:
        await registry.register("s", avro("x"))
        end_offset = (await registry.state()).next_offset
        partition = OwnSchemaPartition(host.broker)
        log = SchemaLog(partition)
        entry = (RecordKey("MODE", "s"), b'{"mode":"READONLY"}')
        with pytest.raises(LogChangedError):
            await log.append([entry], end_offset - 1)
        waiting = asyncio.ensure_future(log.append([entry], end_offset))
        await asyncio.sleep(0)
        with pytest.raises(LogChangedError):
            await log.append([entry], end_offset)  # the one before it may be stored or not
        await waiting
        assert (await registry.state()).next_offset == end_offset + 1

    on_registry(scenario)


def test_a_crash_at_any_step_gives_no_schema_two_ids_and_no_id_two_schemas() -> None:
    async def run() -> None:
        for step in range(0, 120, 5):
            host = await SimBroker().start()
            registry = SchemaRegistry(OwnSchemaPartition(host.broker))
            told = {"x": (await host.do(registry.register("s", avro("x")))).id}
            host.process.crash_at_step(host.process.steps + step)
            try:
                for field in ("y", "z"):
                    told[field] = (await host.do(registry.register("s", avro("x", field)))).id
                host.process.crash()
            except ProcessDiedError:
                pass
            await host.start()
            registry = SchemaRegistry(OwnSchemaPartition(host.broker))
            ids = {field: (await host.do(registry.register("s", avro("x", field)))).id for field in ("z", "w", "y")}
            ids["x"] = (await host.do(registry.register("s", avro("x")))).id
            assert {field: ids[field] for field in told} == told
            assert len(set(ids.values())) == len(ids)
            assert len(await host.do(registry.versions("s"))) == len(ids)
            await host.stop()

    run_simulation(run(), seed=0)
