"""Who a client is and what it may do, by the users and access rules that Kafka's clients have too.

A token is `user:password`. A queue is the topic it is stored in; a consumer is a group, named by its path unless it is one of
Kafka's. To read a queue is READ on its topic, to write to it WRITE, to trim or remove it DELETE, to change it ALTER, and so is to
register a vital consumer; any other needs READ. A static table is the topic its rows are from. Whoever works with a consumer or
producer has READ on the group. Another cluster makes itself known as a user with CLUSTER_ACTION on this one.
"""

from __future__ import annotations

from penstock.broker import CLUSTER_NAME, Broker, Operation, ResourceKind, TooManyAttemptsError, WrongPasswordError
from penstock.broker.namespace import Kind, Node, group_name
from penstock.core.errors import PenstockError
from penstock.gateway.yt.call import Call
from penstock.gateway.yt.errors import NOT_AUTHORIZED, YtError

ANONYMOUS = "ANONYMOUS"
SCHEMES = ("OAuth ", "Bearer ")
_OF_PEERS = (Operation.READ, Operation.DESCRIBE)
_OF_GROUPS = {Operation.DELETE: Operation.DELETE, Operation.DESCRIBE: Operation.DESCRIBE}


class BadTokenError(PenstockError):
    """A client has not proved who it is."""

    code = "bad_token"


class Tokens:
    """Tells users by their tokens."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def user(self, authorization: str | None, host: str) -> str:
        """Who sends a request. BadTokenError if it does not say, or not truly, and somebody is asked for."""
        if self._broker.options.security is None:
            return ANONYMOUS
        token = next((authorization[len(each) :] for each in SCHEMES if authorization and authorization.startswith(each)), "")
        name, colon, password = token.strip().partition(":")
        if not colon or not name:
            raise BadTokenError("give a token of the form user:password, in the environment as YT_TOKEN")
        try:
            await self._broker.sign_in.check_password(name, password, host, "yt")
        except (WrongPasswordError, TooManyAttemptsError) as error:
            raise BadTokenError(f"{error}; a token has the form user:password, in the environment as YT_TOKEN") from error
        return name


def may(call: Call, operation: Operation, kind: ResourceKind, name: str) -> bool:
    """Whether whoever asks may do something."""
    access = call.cluster.broker.access
    return access is None or access.allows(f"User:{call.user}", call.host, operation, kind, name)


def may_node(call: Call, operation: Operation, node: Node) -> bool:
    """Whether whoever asks may do something with a node."""
    if node.kind is Kind.QUEUE:
        return may(call, operation, ResourceKind.TOPIC, call.cluster.broker.namespace.topic(node).name)
    if node.kind is Kind.STATIC:
        return may(call, operation, ResourceKind.TOPIC, node.topic or "")
    if node.kind is Kind.FOLDER:
        return operation is Operation.DESCRIBE or may(call, Operation.ALTER, ResourceKind.CLUSTER, CLUSTER_NAME)
    return may(call, _OF_GROUPS.get(operation, Operation.READ), ResourceKind.GROUP, group_of(node.path))


def check(call: Call, operation: Operation, node: Node) -> None:
    """An error unless whoever asks may do something with a node."""
    if not may_node(call, operation, node) and not (operation in _OF_PEERS and asks_for_itself(call)):
        raise denied(call, operation, node.path)


def is_peer(call: Call) -> bool:
    """Whether another cluster asks, for itself or for a user whom it names as well."""
    return _is_cluster(call, call.peer) or _is_cluster(call, call.user)


def asks_for_itself(call: Call) -> bool:
    """Whether another cluster asks, and for itself; without access rules everyone may know as much as that."""
    return _is_cluster(call, call.user)


def check_peer(call: Call) -> None:
    """An error unless it is another cluster that asks."""
    if not is_peer(call):
        raise YtError(
            NOT_AUTHORIZED,
            f'Access denied for user "{call.user}": only another cluster may say that it passes a registration on; give its '
            f"peer_token_file the token of a user with ClusterAction on this cluster",
            {"user": call.user},
        )


def check_create(call: Call, kind: Kind, path: str, topic: str) -> None:
    """An error unless whoever asks may make such a node."""
    if kind is Kind.QUEUE:
        allowed = may(call, Operation.CREATE, ResourceKind.TOPIC, topic)
    elif kind is Kind.FOLDER:
        allowed = True
    else:
        allowed = may(call, Operation.READ, ResourceKind.GROUP, group_of(path))
    if not allowed and not may(call, Operation.CREATE, ResourceKind.CLUSTER, CLUSTER_NAME):
        raise denied(call, Operation.CREATE, path)


def denied(call: Call, operation: Operation, path: str) -> YtError:
    """That something is not allowed."""
    name = operation.name.lower()
    return YtError(
        NOT_AUTHORIZED,
        f'Access denied for user "{call.user}": "{name}" permission for node {path} is not allowed by any matching rule',
        {"user": call.user, "permission": name, "path": path},
    )


def _is_cluster(call: Call, user: str) -> bool:
    access = call.cluster.broker.access
    asked = (Operation.CLUSTER_ACTION, ResourceKind.CLUSTER, CLUSTER_NAME)
    return access is None or (bool(user) and access.allows(f"User:{user}", call.host, *asked))


def group_of(path: str) -> str:
    """The name of a consumer as a group."""
    return group_name(path) or path
