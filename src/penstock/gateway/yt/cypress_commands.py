"""Commands on nodes and their attributes."""

from __future__ import annotations

from typing import Any

from yt.yson import to_yson_type

from penstock.broker import Operation
from penstock.broker.namespace import Kind, NodeExistsError, NoSuchNodeError, topic_name_of
from penstock.gateway.yt.attributes import attribute_value, attributes_of
from penstock.gateway.yt.call import Call, Command, Reply, parse_flag
from penstock.gateway.yt.errors import GENERIC, NO_SUCH_NODE, SCHEMA_VIOLATION, YtError
from penstock.gateway.yt.formats import read_value
from penstock.gateway.yt.permissions import access_denied, check, check_create, may_node
from penstock.gateway.yt.schema import CONSUMER_SCHEMA, PRODUCER_SCHEMA, Schema, parse_schema
from penstock.gateway.yt.settable_attributes import check_attribute, check_new_attributes
from penstock.gateway.yt.stored_values import to_stored
from penstock.gateway.yt.visible_nodes import children_of, node_at


async def create(call: Call) -> Reply:
    """Create a folder, a queue, a consumer or a producer."""
    path = call.path()
    type_ = call.text("type")
    attributes = dict(call.mapping("attributes"))
    namespace = call.cluster.broker.namespace
    if path.attribute is not None:
        raise YtError(GENERIC, f"{path.node}/@… is an attribute; use set")
    kind, partitions, mounted = _kind(type_, attributes)
    stored = {name: to_stored(value) for name, value in check_new_attributes(kind, attributes).items()}
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
            raise YtError(GENERIC, f"{path.node} exists already, and is not a {type_}") from None
    return Reply({"node_id": node.id})


async def exists(call: Call) -> Reply:
    """Tell whether a node or an attribute exists."""
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
    """Return a node or an attribute."""
    path = call.path()
    node = node_at(call, path)
    if path.attribute is not None:
        return _value(call, await attribute_value(call.cluster, node, path.attribute))
    return _value(call, await _tree(call, node.path, attribute_names(call.get("attributes"))))


async def list_(call: Call) -> Reply:
    """List the nodes in a folder, or the parts of an attribute."""
    path = call.path()
    node = node_at(call, path)
    if path.attribute is not None:
        value = await attribute_value(call.cluster, node, path.attribute)
        if not isinstance(value, dict):
            raise YtError(GENERIC, f"{path.node}/@{'/'.join(path.attribute)} has no children")
        return _value(call, sorted(value))
    names = children_of(call, node)
    wanted = attribute_names(call.get("attributes"))
    if not wanted:
        return _value(call, names)
    children = []
    for name in names:
        child = call.cluster.broker.namespace.node(f"{node.path.rstrip('/') or '/'}/{name}")
        children.append(to_yson_type(name, attributes=await attributes_of(call.cluster, child, wanted)))
    return _value(call, children)


async def set_(call: Call) -> Reply:
    """Set an attribute, or a part of one."""
    path = call.path()
    value = read_value(call.input_format(), call.body)
    if not path.attribute:
        raise YtError(GENERIC, f"only attributes can be set, such as {path.node}/@auto_trim_config")
    node = node_at(call, path)
    check(call, Operation.ALTER, node)
    name, *inner = path.attribute
    if inner:
        value = _replace_part(call.cluster.attribute(node, name), tuple(inner), value, path.node)
    await call.cluster.broker.namespace.set_attributes(node.path, {name: to_stored(check_attribute(node.kind, name, value))})
    return Reply({})


async def multiset_attributes(call: Call) -> Reply:
    """Set several attributes at once."""
    path = call.path()
    values = read_value(call.input_format(), call.body)
    if not isinstance(values, dict):
        raise YtError(GENERIC, "the body must be a map of attributes")
    node = node_at(call, path)
    check(call, Operation.ALTER, node)
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
            raise access_denied(
                call, Operation.DELETE, node.path
            )  # without its path: the caller may not be allowed to know of it
        await namespace.remove(node.path, recursive=call.flag("recursive"))
        return Reply({})
    name, *inner = path.attribute or ("",)
    if name not in node.attributes:
        if call.flag("force"):
            return Reply({})
        raise YtError(NO_SUCH_NODE, f'Attribute "{name}" is not found')
    if inner:
        value = _replace_part(call.cluster.attribute(node, name), tuple(inner), None, path.node, deletes=True)
        await namespace.set_attributes(node.path, {name: to_stored(check_attribute(node.kind, name, value))})
    else:
        await namespace.set_attributes(node.path, {}, (name,))
    return Reply({})


def _value(call: Call, value: Any) -> Reply:
    return Reply(value if call.flag("return_only_value") else {"value": value})


async def _tree(call: Call, path: str, wanted: list[str]) -> Any:
    """A node and everything below it, each with the wanted attributes."""
    namespace = call.cluster.broker.namespace
    node = namespace.node(path)
    value: Any = None
    if node.kind is Kind.FOLDER:
        prefix = path.rstrip("/") or "/"
        value = {name: await _tree(call, f"{prefix}/{name}", wanted) for name in children_of(call, node)}
    return to_yson_type(value, attributes=await attributes_of(call.cluster, node, wanted)) if wanted else value


def attribute_names(parameter: Any) -> list[str]:
    """The names in a parameter that lists attributes, also in the form of a map with `keys`."""
    keys = parameter.get("keys", []) if isinstance(parameter, dict) else parameter or []
    if not isinstance(keys, list):
        raise YtError(GENERIC, f"attributes must be a list of names, not {type(keys).__name__}")
    return [str(name) for name in keys]


def _kind(type_: str, attributes: dict[str, Any]) -> tuple[Kind, int, bool]:
    """The kind of the node to create, its number of partitions, and whether it starts mounted."""
    if type_ == "map_node":
        return Kind.FOLDER, 0, False
    if type_ == "queue_consumer":
        return Kind.CONSUMER, 0, True
    if type_ == "queue_producer":
        return Kind.PRODUCER, 0, True
    if type_ != "table":
        raise YtError(
            GENERIC, f'nodes of type "{type_}" are not supported; use table, queue_consumer, queue_producer or map_node'
        )
    if not parse_flag(attributes.get("dynamic", False), "dynamic"):
        raise YtError(
            GENERIC,
            "static tables are created only by exports (static_export_config); for a queue add dynamic=%true to the attributes",
        )
    schema = parse_schema(attributes.get("schema"))
    if not schema.keys:
        return Kind.QUEUE, _tablet_count(attributes), False
    if _matches(schema, CONSUMER_SCHEMA):
        return Kind.CONSUMER, 0, False
    if _matches(schema, PRODUCER_SCHEMA):
        return Kind.PRODUCER, 0, False
    raise YtError(
        SCHEMA_VIOLATION,
        "a sorted table can only be a consumer or a producer; the keys of a consumer are "
        f"{', '.join(CONSUMER_SCHEMA.keys)}, those of a producer {', '.join(PRODUCER_SCHEMA.keys)}",
    )


def _matches(schema: Schema, known: Schema) -> bool:
    """Whether a schema has the keys and required columns of another, with the same types, and no others."""
    types = {column.name: column.type for column in known.columns}
    needed = {column.name for column in known.columns if column.required}
    actual = {column.name: column.type for column in schema.columns}
    return (
        schema.keys == known.keys and needed <= actual.keys() and all(types.get(name) == type_ for name, type_ in actual.items())
    )


def _tablet_count(attributes: dict[str, Any]) -> int:
    count = attributes.get("tablet_count", 1)
    if isinstance(count, str) and count.isdigit():
        count = int(count)
    if not isinstance(count, int) or count < 1:
        raise YtError(GENERIC, f"tablet_count must be a number from 1 on, not {count!r}")
    return int(count)


def _replace_part(value: Any, keys: tuple[str, ...], new: Any, node: str, *, deletes: bool = False) -> Any:
    """A copy of the value with one part replaced or deleted, by the keys that lead to it."""
    if not isinstance(value, dict):
        raise YtError(NO_SUCH_NODE, f"{node} has no attribute with a part {keys[0]!r}")
    changed = dict(value)
    if len(keys) > 1:
        changed[keys[0]] = _replace_part(value.get(keys[0]), keys[1:], new, node, deletes=deletes)
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
