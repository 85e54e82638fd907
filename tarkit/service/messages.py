"""The messages and calls of a ``.proto`` file beside this module, as classes of the protobuf library.

The files are read when they are needed, so no code is generated, and any release of protobuf from 3.20 on serves. The
classes are in a pool of their own: those of ElasticDL's client can be imported beside them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tarkit.errors import library

_TYPES = {"double": 1, "int64": 3, "int32": 5, "bool": 8, "string": 9}
"""Scalar -> its number in descriptor.proto."""
_ENUM, _MESSAGE, _OPTIONAL, _REPEATED = 14, 11, 1, 3
_BLOCK = re.compile(r"(message|enum|service) (\w+) \{(.*?)\n?\}", re.DOTALL)
_FIELD = re.compile(r"(repeated )?(map<(\w+), (\w+)>|\w+) (\w+) = (\d+);")
_VALUE = re.compile(r"(\w+) = (\d+);")
_CALL = re.compile(r"rpc (\w+)\((\w+)\) returns \((stream )?(\w+)\);")


@dataclass(frozen=True)
class Call:
    """A call of a service. path: as gRPC names it. request, reply: classes of messages. stream: there may be many
    replies."""

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
    """What a file defines. messages: name -> class."""

    messages: dict[str, Any]
    calls: list[Call]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.messages[name]
        except KeyError:
            raise AttributeError(name) from None


@cache
def protocol(name: str) -> Protocol:
    """The protocol of ``NAME.proto``.

    Raises:
        MissingExtraError: protobuf is not installed.
    """
    descriptors = library("google.protobuf.descriptor_pb2", "the shard service", "service")
    pools = library("google.protobuf.descriptor_pool", "the shard service", "service")
    factory = library("google.protobuf.message_factory", "the shard service", "service")
    text = re.sub(r"//.*", "", Path(__file__).with_name(f"{name}.proto").read_text(encoding="utf-8"))
    package = re.findall(r"package ([\w.]+);", text)[0]
    blocks = _BLOCK.findall(text)
    file = descriptors.FileDescriptorProto(name=f"tarkit/{name}.proto", package=package, syntax="proto3")
    enums = {block for kind, block, _ in blocks if kind == "enum"}
    for kind, block, body in blocks:
        if kind == "enum":
            values = [{"name": value, "number": int(number)} for value, number in _VALUE.findall(body)]
            file.enum_type.add(name=block, value=values)
        elif kind == "message":
            _add_fields(file.message_type.add(name=block), body, package, enums)
    pool = pools.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    messages = {each.name: _class_of(factory, pool, f"{package}.{each.name}") for each in file.message_type}
    calls = [
        Call(call, f"/{package}.{service}/{call}", messages[request], messages[reply], bool(stream))
        for kind, service, body in blocks
        if kind == "service"
        for call, request, stream, reply in _CALL.findall(body)
    ]
    return Protocol(messages, calls)


def _add_fields(message: Any, body: str, package: str, enums: set[str]) -> None:
    for repeated, kind, key, value, name, number in _FIELD.findall(body):
        field = message.field.add(name=name, number=int(number), label=_REPEATED if repeated or key else _OPTIONAL)
        if key:
            entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
            entry.options.map_entry = True
            for at, (part, of) in enumerate((("key", key), ("value", value)), 1):
                entry.field.add(name=part, number=at, label=_OPTIONAL, type=_TYPES[of])
            field.type, field.type_name = _MESSAGE, f".{package}.{message.name}.{entry.name}"
        elif kind in _TYPES:
            field.type = _TYPES[kind]
        else:
            field.type, field.type_name = (_ENUM if kind in enums else _MESSAGE), f".{package}.{kind}"


def _class_of(factory: Any, pool: Any, name: str) -> Any:
    descriptor = pool.FindMessageTypeByName(name)
    if hasattr(factory, "GetMessageClass"):
        return factory.GetMessageClass(descriptor)
    return factory.MessageFactory(pool).GetPrototype(descriptor)  # before protobuf 4.22
