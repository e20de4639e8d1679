"""Commands on nodes and their attributes."""

from __future__ import annotations

from typing import Any

from yt.yson import to_yson_type

from penstock.broker import Operation
from penstock.broker.namespace import Kind, NodeExistsError, NoSuchNodeError, topic_name_of
from penstock.gateway.yt.attributes import attribute_value, attributes_of, check_attribute, is_builtin
from penstock.gateway.yt.call import Call, Command, Reply, flag_of
from penstock.gateway.yt.errors import GENERIC, NO_SUCH_NODE, SCHEMA_VIOLATION, YtError
from penstock.gateway.yt.formats import read_value
from penstock.gateway.yt.permissions import check, check_create, denied, may_node
from penstock.gateway.yt.schema import CONSUMER_SCHEMA, PRODUCER_SCHEMA, Schema, schema_of
from penstock.gateway.yt.stored_values import to_stored
from penstock.gateway.yt.visible_nodes import children_of, node_at

# Attributes that say how a table is made, and are told from the table itself afterwards.
_MAKING = frozenset({"dynamic", "tablet_count", "pivot_keys"})


async def create(call: Call) -> Reply:
    """A folder, a queue, a consumer or a producer."""
    path = call.path()
    type_ = call.text("type")
    attributes = dict(call.mapping("attributes"))
    namespace = call.cluster.broker.namespace
    if path.attribute is not None:
        raise YtError(GENERIC, f"{path.node}/@… is an attribute; use set")
    kind, partitions, mounted = _kind(type_, attributes)
    stored = {name: to_stored(check_attribute(kind, name, value)) for name, value in attributes.items() if name not in _MAKING}
    check_create(call, kind, path.node, topic_name_of(path.node))
    if call.flag("force") and namespace.find(path.node) is not None:
        check(call, Operation.DELETE, namespace.node(path.node))
        await namespace.remove(path.node, recursive=True)
    try:
        node = await namespace.create(
            path.node, kind, stored, partitions=partitions, mounted=mounted, recursive=call.flag("recursive")
        )
    except NodeExistsError:
        if not call.flag("ignore_existing"):
            raise
        node = namespace.node(path.node)
        if node.kind is not kind:
            raise YtError(GENERIC, f"{path.node} is there already, and is not a {type_}") from None
    return Reply({"node_id": node.id})


async def exists(call: Call) -> Reply:
    """Whether there is such a node or attribute."""
    path = call.path()
    try:
        node = node_at(call, path)
        if path.attribute:
            await attribute_value(call.cluster, node, path.attribute)
    except (NoSuchNodeError, YtError) as error:
        if isinstance(error, YtError) and error.number != NO_SUCH_NODE:
            raise
        return Reply({"value": False})
    return Reply({"value": True})


async def get(call: Call) -> Reply:
    """A node or an attribute."""
    path = call.path()
    node = node_at(call, path)
    if path.attribute is not None:
        return _value(call, await attribute_value(call.cluster, node, path.attribute))
    return _value(call, await _tree(call, node.path, names_in(call.get("attributes"))))


async def list_(call: Call) -> Reply:
    """Names of the nodes in a folder, or of the attributes of a node."""
    path = call.path()
    node = node_at(call, path)
    if path.attribute is not None:
        value = await attribute_value(call.cluster, node, path.attribute)
        if not isinstance(value, dict):
            raise YtError(GENERIC, f"{path.node}/@{'/'.join(path.attribute)} has no children")
        return _value(call, sorted(value))
    names = children_of(call, node)
    wanted = names_in(call.get("attributes"))
    if not wanted:
        return _value(call, names)
    shown = []
    for name in names:
        child = call.cluster.broker.namespace.node(f"{node.path.rstrip('/') or '/'}/{name}")
        shown.append(to_yson_type(name, attributes=await attributes_of(call.cluster, child, wanted)))
    return _value(call, shown)


async def set_(call: Call) -> Reply:
    """Set an attribute, or a part of one."""
    path = call.path()
    value = read_value(call.input_format(), call.body)
    if not path.attribute:
        raise YtError(GENERIC, f"only attributes can be set, such as {path.node}/@auto_trim_config")
    node = node_at(call, path)
    check(call, Operation.ALTER, node)
    name, *inner = path.attribute
    if is_builtin(name):
        raise YtError(GENERIC, f'Builtin attribute "{name}" cannot be set')
    if inner:
        value = _with(call.cluster.attribute(node, name), tuple(inner), value, path.node)
    await call.cluster.broker.namespace.set_attributes(node.path, {name: to_stored(check_attribute(node.kind, name, value))})
    return Reply({})


async def multiset_attributes(call: Call) -> Reply:
    """Set several attributes at once."""
    path = call.path()
    values = read_value(call.input_format(), call.body)
    if not isinstance(values, dict):
        raise YtError(GENERIC, "a map of attributes is needed")
    node = node_at(call, path)
    check(call, Operation.ALTER, node)
    for name in values:
        if is_builtin(name):
            raise YtError(GENERIC, f'Builtin attribute "{name}" cannot be set')
    stored = {name: to_stored(check_attribute(node.kind, name, value)) for name, value in values.items()}
    await call.cluster.broker.namespace.set_attributes(node.path, stored)
    return Reply({})


async def remove(call: Call) -> Reply:
    """Remove a node with its data, or an attribute."""
    path = call.path()
    namespace = call.cluster.broker.namespace
    try:
        node = node_at(call, path)
    except NoSuchNodeError:
        if call.flag("force"):
            return Reply({})
        raise
    check(call, Operation.DELETE if path.attribute is None else Operation.ALTER, node)
    if path.attribute is None:
        if not all(may_node(call, Operation.DELETE, below) for below in namespace.inside(node.path)):
            raise denied(call, Operation.DELETE, node.path)  # which of them it is may be none of the caller's business
        await namespace.remove(node.path, recursive=call.flag("recursive"))
        return Reply({})
    name, *inner = path.attribute or ("",)
    if name not in node.attributes:
        if call.flag("force"):
            return Reply({})
        raise YtError(NO_SUCH_NODE, f'Attribute "{name}" is not found')
    if inner:
        value = _with(call.cluster.attribute(node, name), tuple(inner), None, path.node, deletes=True)
        await namespace.set_attributes(node.path, {name: to_stored(check_attribute(node.kind, name, value))})
    else:
        await namespace.set_attributes(node.path, {}, (name,))
    return Reply({})


def _value(call: Call, value: Any) -> Reply:
    return Reply(value if call.flag("return_only_value") else {"value": value})


async def _tree(call: Call, path: str, wanted: list[str]) -> Any:
    """A node with all that is in it, and of each the attributes that are wanted."""
    namespace = call.cluster.broker.namespace
    node = namespace.node(path)
    value: Any = None
    if node.kind is Kind.FOLDER:
        prefix = path.rstrip("/") or "/"
        value = {name: await _tree(call, f"{prefix}/{name}", wanted) for name in children_of(call, node)}
    return to_yson_type(value, attributes=await attributes_of(call.cluster, node, wanted)) if wanted else value


def names_in(given: Any) -> list[str]:
    """The names in a parameter that lists attributes, also as a map with its keys."""
    keys = given.get("keys", []) if isinstance(given, dict) else given or []
    if not isinstance(keys, list):
        raise YtError(GENERIC, f"attributes is a list of names, not {type(keys).__name__}")
    return [str(name) for name in keys]


def _kind(type_: str, attributes: dict[str, Any]) -> tuple[Kind, int, bool]:
    """What kind of node is wanted, with how many partitions, and whether it is mounted from the start."""
    if type_ == "map_node":
        return Kind.FOLDER, 0, False
    if type_ == "queue_consumer":
        return Kind.CONSUMER, 0, True
    if type_ == "queue_producer":
        return Kind.PRODUCER, 0, True
    if type_ != "table":
        raise YtError(
            GENERIC, f'nodes of type "{type_}" are not kept here; use table, queue_consumer, queue_producer or map_node'
        )
    if not flag_of(attributes.get("dynamic", False), "dynamic"):
        raise YtError(
            GENERIC,
            "static tables are made by exports alone (static_export_config); for a queue add dynamic=%true to the attributes",
        )
    schema = schema_of(attributes.get("schema"))
    if not schema.keys:
        return Kind.QUEUE, _tablet_count(attributes), False
    if _fits(schema, CONSUMER_SCHEMA):
        return Kind.CONSUMER, 0, False
    if _fits(schema, PRODUCER_SCHEMA):
        return Kind.PRODUCER, 0, False
    raise YtError(
        SCHEMA_VIOLATION,
        "a sorted table is kept here only as a consumer or a producer; the keys of a consumer are "
        f"{', '.join(CONSUMER_SCHEMA.keys)}, those of a producer {', '.join(PRODUCER_SCHEMA.keys)}",
    )


def _fits(schema: Schema, known: Schema) -> bool:
    """Whether a table can be what another is: the same keys and required columns, of the same types."""
    types = {column.name: column.type for column in known.columns}
    needed = {column.name for column in known.columns if column.required}
    given = {column.name: column.type for column in schema.columns}
    return schema.keys == known.keys and needed <= given.keys() and all(types.get(name) == type_ for name, type_ in given.items())


def _tablet_count(attributes: dict[str, Any]) -> int:
    count = attributes.get("tablet_count", 1)
    if isinstance(count, str) and count.isdigit():
        count = int(count)
    if not isinstance(count, int) or count < 1:
        raise YtError(GENERIC, f"tablet_count is a number from 1 on, not {count!r}")
    return int(count)


def _with(value: Any, keys: tuple[str, ...], new: Any, node: str, *, deletes: bool = False) -> Any:
    """The value with another part, by the keys that lead to it."""
    if not isinstance(value, dict):
        raise YtError(NO_SUCH_NODE, f"{node} has no attribute with a part {keys[0]!r}")
    changed = dict(value)
    if len(keys) > 1:
        changed[keys[0]] = _with(value.get(keys[0]), keys[1:], new, node, deletes=deletes)
    elif deletes:
        changed.pop(keys[0], None)
    else:
        changed[keys[0]] = new
    return changed


COMMANDS = {
    "create": Command(create, is_volatile=True),
    "exists": Command(exists),
    "get": Command(get),
    "list": Command(list_),
    "set": Command(set_, input_type="structured", is_volatile=True),
    "multiset_attributes": Command(multiset_attributes, input_type="structured", is_volatile=True),
    "remove": Command(remove, is_volatile=True),
}
