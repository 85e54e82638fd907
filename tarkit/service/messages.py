"""Messages and calls of a protocol, as classes of the protobuf library.

They are made from ``NAME.binpb``, the descriptors of ``NAME.proto``, so no code is generated, and
any release of protobuf from 3.20 on serves. After a change of a .proto file, generate it again::

    cd tarkit/service
    python -m grpc_tools.protoc -I. --descriptor_set_out=shards.binpb shards.proto

The classes of each file are in a pool of their own: code that protoc generated for another client
can be imported beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from typing import Protocol as Interface

from tarkit.extras import library


@dataclass(frozen=True)
class Call:
    """A call of a service.

    Attributes:
        path: path of the method in gRPC.
        request, reply: classes of messages.
        stream: there may be many replies.
    """

    name: str
    path: str
    request: Any
    reply: Any
    stream: bool

    def stub(self, channel: Any) -> Any:
        """Return the function that makes the call on a gRPC channel."""
        make = channel.unary_stream if self.stream else channel.unary_unary
        return make(self.path, self.request.SerializeToString, self.reply.FromString)


@dataclass(frozen=True)
class Protocol:
    """A protocol: the messages and calls of a .proto file.

    Attributes:
        messages: classes, as attributes.
    """

    messages: Any
    calls: list[Call]


class Answers(Interface):
    """Interface of the answers to the calls of one protocol: one method for each call."""

    @property
    def protocol(self) -> Protocol:
        """Protocol of the calls."""


def shard_protocol() -> Protocol:
    """Return tarkit's own protocol, ``shards.proto``.

    Raises:
        MissingExtraError: protobuf is not installed.
    """
    return read_protocol(Path(__file__).with_name("shards.binpb"))


@cache
def read_protocol(path: Path) -> Protocol:
    """Read a protocol from its descriptors.

    Args:
        path: ``NAME.binpb``, of one .proto file that imports no other.

    Raises:
        MissingExtraError: protobuf is not installed.
    """
    descriptors = library("google.protobuf.descriptor_pb2", "the shard service", "service")
    factory = library("google.protobuf.message_factory", "the shard service", "service")
    (file,) = descriptors.FileDescriptorSet.FromString(path.read_bytes()).file
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
