"""One TLS context for all connections of a client.

redis-py reads all certificates of the machine anew for each connection: 25 ms, in which nothing
else runs, and for a burst of 64 connections more than a second.
"""

from typing import Any

from redis.asyncio import RedisCluster
from redis.asyncio.connection import RedisSSLContext, SSLConnection


def share_context(client: Any) -> None:
    """Before its first connection; a client without TLS stays as it is."""
    if isinstance(client, RedisCluster):
        nodes = client.nodes_manager
        makers, options = list(nodes.startup_nodes.values()), nodes.connection_kwargs
    else:
        makers, options = [client.connection_pool], client.connection_pool.connection_kwargs
    if makers[0].connection_class is not SSLConnection:
        return
    sharing = _sharing({name: options[name] for name in options if name.startswith("ssl_")})
    for maker in makers:
        maker.connection_class = sharing
    if isinstance(client, RedisCluster):
        options["connection_class"] = sharing  # of nodes that are found later


def _sharing(options: dict[str, Any]) -> type[SSLConnection]:
    context: RedisSSLContext = SSLConnection(**options).ssl_context

    class Sharing(SSLConnection):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.ssl_context = context

    return Sharing
