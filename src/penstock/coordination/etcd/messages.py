"""The messages of etcd's API that we use, with the fields that we use, described here by name, number and type.

The numbers are those of etcd 3.4 and later. The descriptions live in a pool of their own, so that another client of etcd in the
same process does not mind.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE: Final = "penstock.etcd"

_Field = descriptor_pb2.FieldDescriptorProto
_TYPES: Final = {
    "bool": _Field.TYPE_BOOL,
    "bytes": _Field.TYPE_BYTES,
    "enum": _Field.TYPE_INT32,  # has the same form on the wire
    "int64": _Field.TYPE_INT64,
    "string": _Field.TYPE_STRING,
    "uint64": _Field.TYPE_UINT64,
}

# Each message: its fields as "name number type", a list with "*", a choice (oneof) with "|".
_MESSAGES: Final = {
    "ResponseHeader": "cluster_id 1 uint64, member_id 2 uint64, revision 3 int64, raft_term 4 uint64",
    "KeyValue": "key 1 bytes, create_revision 2 int64, mod_revision 3 int64, version 4 int64, value 5 bytes, lease 6 int64",
    "RangeRequest": "key 1 bytes, range_end 2 bytes, limit 3 int64, revision 4 int64",
    "RangeResponse": "header 1 ResponseHeader, kvs 2 *KeyValue, more 3 bool",
    "PutRequest": "key 1 bytes, value 2 bytes, lease 3 int64",
    "DeleteRangeRequest": "key 1 bytes, range_end 2 bytes",
    "Compare": "result 1 enum, target 2 enum, key 3 bytes, mod_revision 6 |int64",
    "RequestOp": "request_put 2 |PutRequest, request_delete_range 3 |DeleteRangeRequest",
    "TxnRequest": "compare 1 *Compare, success 2 *RequestOp, failure 3 *RequestOp",
    "TxnResponse": "header 1 ResponseHeader, succeeded 2 bool",
    "Event": "type 1 enum, kv 2 KeyValue",
    "WatchCreateRequest": "key 1 bytes, range_end 2 bytes, start_revision 3 int64",
    "WatchProgressRequest": "",
    "WatchRequest": "create_request 1 |WatchCreateRequest, progress_request 3 |WatchProgressRequest",
    "WatchResponse": (
        "header 1 ResponseHeader, watch_id 2 int64, created 3 bool, canceled 4 bool, compact_revision 5 int64,"
        " cancel_reason 6 string, events 11 *Event"
    ),
    "LeaseGrantRequest": "TTL 1 int64, ID 2 int64",
    "LeaseGrantResponse": "header 1 ResponseHeader, ID 2 int64, TTL 3 int64, error 4 string",
    "LeaseRevokeRequest": "ID 1 int64",
    "LeaseRevokeResponse": "header 1 ResponseHeader",
    "LeaseKeepAliveRequest": "ID 1 int64",
    "LeaseKeepAliveResponse": "header 1 ResponseHeader, ID 2 int64, TTL 3 int64",
    "AuthenticateRequest": "name 1 string, password 2 string",
    "AuthenticateResponse": "header 1 ResponseHeader, token 2 string",
}

COMPARE_EQUAL: Final = 0
COMPARE_MOD: Final = 2
EVENT_DELETE: Final = 1


def _describe(message: Any, fields: str) -> None:
    for field_text in filter(None, fields.split(", ")):
        name, number, kind = field_text.split(" ")
        field = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
        if kind[0] == "*":
            field.label = _Field.LABEL_REPEATED
        elif kind[0] == "|":
            if not message.oneof_decl:
                message.oneof_decl.add(name="choice")
            field.oneof_index = 0
        kind = kind.lstrip("*|")
        if kind in _TYPES:
            field.type = _TYPES[kind]
        else:
            field.type = _Field.TYPE_MESSAGE
            field.type_name = f".{PACKAGE}.{kind}"


def _make() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="penstock/etcd.proto", package=PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        _describe(file.message_type.add(name=name), fields)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in _MESSAGES}


_classes: Final = _make()


def message(name: str) -> Any:
    """The class of a message."""
    return _classes[name]
