"""The messages and calls of ``shards.proto`` and ``elasticdl.proto``, as classes of the protobuf
library.

They are made from ``protocols.binpb``, the descriptors of both files, so no code is generated, and any release of
protobuf from 3.20 on serves. After a change of a .proto file, write it anew::

    cd tarkit/service
    python -m grpc_tools.protoc -I. --descriptor_set_out=protocols.binpb shards.proto elasticdl.proto

The classes of each file are in a pool of their own: those of ElasticDL's client can be imported
beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tarkit.extras import library


@dataclass(frozen=True)
class Call:
    """A call of a service.

    Attributes:
        path: as gRPC names it.
        request, reply: classes of messages.
        stream: there may be many replies.
    """

    name: str
    path: str
    request: Any
    reply: Any
    stream: bool

    def stub(self, channel: Any) -> Any:
        """What makes the call on a channel of gRPC."""
        make = channel.unary_stream if self.stream else channel.unary_unary
        return make(self.path, self.request.SerializeToString, self.reply.FromString)


@dataclass(frozen=True)
class Protocol:
    """What a file defines.

    Attributes:
        messages: classes, as attributes.
    """

    messages: Any
    calls: list[Call]


@cache
def protocol(name: str) -> Protocol:
    """The protocol of ``NAME.proto``.

    Raises:
        MissingExtraError: protobuf is not installed.
    """
    descriptors = library("google.protobuf.descriptor_pb2", "the shard service", "service")
    factory = library("google.protobuf.message_factory", "the shard service", "service")
    files = descriptors.FileDescriptorSet.FromString(Path(__file__).with_name("protocols.binpb").read_bytes())
    (file,) = (each for each in files.file if each.name == f"{name}.proto")
    classes = {f".{full_name}": made for full_name, made in factory.GetMessages([file]).items()}
    calls = [
        Call(
            method.name,
            f"/{file.package}.{service.name}/{method.name}",
            classes[method.input_type],
            classes[method.output_type],
            method.server_streaming,
        )
        for service in file.service
        for method in service.method
    ]
    return Protocol(SimpleNamespace(**{made.DESCRIPTOR.name: made for made in classes.values()}), calls)
