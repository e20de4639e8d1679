"""`penstock topic copy`: copies a topic to another one, with its partitions and configuration."""

from __future__ import annotations

from argparse import Namespace
from contextlib import ExitStack

from penstock.cli.connection import Connection
from penstock.cli.exit_codes import ExitCode
from penstock.cli.failure import usage
from penstock.cli.kafka_client import CommandClient
from penstock.cli.output import Output, Progress
from penstock.cli.topic_actions import topic_configs
from penstock.client.topic_copy import TopicCopy
from penstock.kafka.client import RequestRefusedError, finish
from penstock.kafka.protocol import errors, keys, topics


def copy(arguments: Namespace, output: Output) -> int:
    """Copy, and say how much."""
    with ExitStack() as stack:
        source = stack.enter_context(Connection(arguments).client())
        target = stack.enter_context(_target(arguments))
        _create_target(source, target, arguments, output)
        copier = finish(
            TopicCopy.open(source.coroutines, target.coroutines, (arguments.name, arguments.target), follows=arguments.follow)
        )
        progress = Progress(shown=True)
        messages = 0
        try:
            while not copier.is_done:
                copied = finish(copier.copy_round())
                messages += copied.messages
                progress.add(*copied)
        except KeyboardInterrupt:
            if not arguments.follow:
                raise
        finally:
            progress.end()
    if output.as_json:
        output.document({"source": arguments.name, "target": arguments.target, "messages": messages})
    output.say(f"copied {messages:,} message{'' if messages == 1 else 's'} from {arguments.name} to {arguments.target}")
    return ExitCode.OK


def _target(arguments: Namespace) -> CommandClient:
    """The server to write to. No sign-in of the source is used for another server."""
    if arguments.to_profile and arguments.to_bootstrap:
        raise usage("give --to-profile or --to-bootstrap, not both")
    if not arguments.to_profile and not arguments.to_bootstrap:
        return Connection(arguments).client()
    options = dict.fromkeys(("bootstrap", "http", "stream", "user", "password_file", "tls_ca"))
    options.update(profile=arguments.to_profile, bootstrap=arguments.to_bootstrap)
    return Connection(Namespace(**{**vars(arguments), **options}), environment={}).client()


def _create_target(source: CommandClient, target: CommandClient, arguments: Namespace, output: Output) -> None:
    """Create the target like the source, unless it exists."""
    topic = source.topic(arguments.name)
    if arguments.target in target.known_topics([arguments.target]):
        return
    settings = topic_configs(source, arguments.name, everything=False)
    wanted = topics.CreatableTopic(
        name=arguments.target,
        num_partitions=len(topic.partitions),
        replication_factor=-1,
        configs=[topics.CreatableTopicConfig(name=key, value=value) for key, value in settings.items()],
    )
    request = topics.CreateTopicsRequest(topics=[wanted], timeout_ms=int(target.timeout_s * 1000))
    (answer,) = target.call(keys.CREATE_TOPICS, request, topics.CreateTopicsResponse).topics
    if answer.error_code not in (errors.NONE, errors.TOPIC_ALREADY_EXISTS):
        raise RequestRefusedError(f"topic {arguments.target!r}", answer.error_code, answer.error_message)
    output.say(
        f"created topic {arguments.target} with {len(topic.partitions)} partition{'s' if len(topic.partitions) > 1 else ''}"
    )
