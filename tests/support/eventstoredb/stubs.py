"""The messages of EventStoreDB's protocol, taken from whichever client is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from esdbclient.protos.Grpc import gossip_pb2, shared_pb2, status_pb2, streams_pb2
else:
    try:
        from esdbclient.protos.Grpc import gossip_pb2, shared_pb2, status_pb2, streams_pb2
    except ImportError:
        from kurrentdbclient.protos.v1 import gossip_pb2, shared_pb2, status_pb2, streams_pb2

__all__ = ["gossip_pb2", "shared_pb2", "status_pb2", "streams_pb2"]
