"""Where a node serves what is not Kafka's protocol: asked from the node that the bootstrap address leads to."""

from __future__ import annotations

from typing import Final

from penstock.kafka.client import KafkaClient, RequestRefusedError
from penstock.kafka.protocol import configs, keys

BROKER_RESOURCE: Final = 4
LISTENERS_KEY: Final = "penstock.listeners"


async def find_listeners(client: KafkaClient) -> dict[str, str]:
    """The addresses of the other listeners by their names; empty for a broker that is not Penstock."""

    async def attempt() -> dict[str, str]:
        node = (await client.metadata([])).controller_id
        resource = configs.DescribeConfigsResource(
            resource_type=BROKER_RESOURCE, resource_name=str(node), configuration_keys=[LISTENERS_KEY]
        )
        request = configs.DescribeConfigsRequest(resources=[resource])
        reply = await client.call_on(await client.node(node), keys.DESCRIBE_CONFIGS, request, configs.DescribeConfigsResponse)
        (answer,) = reply.results
        if answer.error_code:
            raise RequestRefusedError(f"the configuration of node {node}", answer.error_code, answer.error_message)
        pairs = (item.partition("=") for config in answer.configs for item in (config.value or "").split(",") if item)
        return {name: address for name, _, address in pairs}

    return await client.retry(attempt)
