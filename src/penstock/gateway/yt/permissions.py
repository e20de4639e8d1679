"""Authentication and access rules, with the same users and rules as for Kafka's clients.

A token is `user:password`, or one that the broker issued. A queue is the topic it is stored in; a consumer is a group, named by
its path unless it is one of Kafka's. Reading a queue needs READ on its topic, writing WRITE, trimming or removing DELETE,
changing ALTER. Registering a vital consumer needs ALTER, any other READ. A static table is the topic its rows are from. Using a
consumer or a producer needs READ on the group. Another cluster authenticates itself as a user with CLUSTER_ACTION on this one.
"""

from __future__ import annotations

from penstock.broker import CLUSTER_NAME, Broker, Operation, ResourceKind, TooManyAttemptsError, WrongPasswordError
from penstock.broker import BadTokenError as InvalidTokenError
from penstock.broker.namespace import Kind, Node, group_name
from penstock.core.errors import PenstockError
from penstock.gateway.yt.call import Call
from penstock.gateway.yt.errors import NOT_AUTHORIZED, YtError

ANONYMOUS = "ANONYMOUS"
SCHEMES = ("OAuth ", "Bearer ")
_PEER_OPERATIONS = (Operation.READ, Operation.DESCRIBE)
_GROUP_OPERATIONS = {Operation.DELETE: Operation.DELETE, Operation.DESCRIBE: Operation.DESCRIBE}


class BadTokenError(PenstockError):
    """The client has no valid token."""

    code = "bad_token"


class Tokens:
    """Authenticates users by their tokens."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def user(self, authorization: str | None, host: str) -> str:
        """The user who sends a request. BadTokenError if the node requires a token and there is no valid one."""
        if self._broker.options.security is None:
            return ANONYMOUS
        token = next((authorization[len(each) :] for each in SCHEMES if authorization and authorization.startswith(each)), "")
        name, colon, password = token.strip().partition(":")
        if name and not colon and self._broker.tokens is not None:
            try:
                return self._broker.tokens.user_of(name)
            except InvalidTokenError as error:
                raise BadTokenError(f"{error}; or set YT_TOKEN to user:password") from error
        if not colon or not name:
            raise BadTokenError("set YT_TOKEN to user:password, or to a token from `penstock user issue-token`")
        try:
            await self._broker.sign_in.check_password(name, password, host, "yt")
        except (WrongPasswordError, TooManyAttemptsError) as error:
            raise BadTokenError(f"{error}; a token has the form user:password, in the environment as YT_TOKEN") from error
        return name


def may(call: Call, operation: Operation, kind: ResourceKind, name: str) -> bool:
    """Whether the caller may use a resource."""
    access = call.cluster.broker.access
    return access is None or access.allows(f"User:{call.user}", call.host, operation, kind, name)


def may_node(call: Call, operation: Operation, node: Node) -> bool:
    """Whether the caller may use a node."""
    if node.kind is Kind.QUEUE:
        return may(call, operation, ResourceKind.TOPIC, call.cluster.broker.namespace.topic(node).name)
    if node.kind is Kind.STATIC:
        return may(call, operation, ResourceKind.TOPIC, node.topic or "")
    if node.kind is Kind.FOLDER:
        return operation is Operation.DESCRIBE or may(call, Operation.ALTER, ResourceKind.CLUSTER, CLUSTER_NAME)
    return may(call, _GROUP_OPERATIONS.get(operation, Operation.READ), ResourceKind.GROUP, group_of(node.path))


def check(call: Call, operation: Operation, node: Node) -> None:
    """YtError unless the caller may use a node."""
    if not may_node(call, operation, node) and not (operation in _PEER_OPERATIONS and is_peer_itself(call)):
        raise access_denied(call, operation, node.path)


def is_peer(call: Call) -> bool:
    """Whether the caller is another cluster, acting for itself or for a user."""
    return _is_cluster(call, call.peer) or _is_cluster(call, call.user)


def is_peer_itself(call: Call) -> bool:
    """Whether the caller is another cluster acting for itself; without access rules every caller counts as one."""
    return _is_cluster(call, call.user)


def check_peer(call: Call) -> None:
    """YtError unless the caller is another cluster."""
    if not is_peer(call):
        raise YtError(
            NOT_AUTHORIZED,
            f'Access denied for user "{call.user}": only another cluster may forward a registration; give its '
            f"peer_token_file the token of a user with ClusterAction on this cluster",
            {"user": call.user},
        )


def check_create(call: Call, kind: Kind, path: str, topic: str) -> None:
    """YtError unless the caller may create a node."""
    if kind is Kind.QUEUE:
        allowed = may(call, Operation.CREATE, ResourceKind.TOPIC, topic)
    elif kind is Kind.FOLDER:
        allowed = True
    else:
        allowed = may(call, Operation.READ, ResourceKind.GROUP, group_of(path))
    if not allowed and not may(call, Operation.CREATE, ResourceKind.CLUSTER, CLUSTER_NAME):
        raise access_denied(call, Operation.CREATE, path)


def access_denied(call: Call, operation: Operation, path: str) -> YtError:
    """The error of a caller without the right."""
    name = operation.name.lower()
    return YtError(
        NOT_AUTHORIZED,
        f'Access denied for user "{call.user}": "{name}" permission for node {path} is not allowed by any matching rule',
        {"user": call.user, "permission": name, "path": path},
    )


def _is_cluster(call: Call, user: str) -> bool:
    access = call.cluster.broker.access
    right = (Operation.CLUSTER_ACTION, ResourceKind.CLUSTER, CLUSTER_NAME)
    return access is None or (bool(user) and access.allows(f"User:{user}", call.host, *right))


def group_of(path: str) -> str:
    """The group name of a consumer."""
    return group_name(path) or path
