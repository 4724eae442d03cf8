"""Reflection that gives fields their JSON names.

The descriptors that Python's stubs embed leave `json_name` out. A client that prints by
reflected descriptors (grpcurl) would show `content_hashes` where every generated client,
gateway and document says `contentHashes`. So reflection is answered from copies in which
each field has its name. The details of errors are among them, so that a client can print
those too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf import descriptor_pb2, descriptor_pool
from google.rpc import error_details_pb2
from grpc_reflection.v1alpha import reflection

if TYPE_CHECKING:
    from collections.abc import Iterable

    import grpc
    from google.protobuf.descriptor import Descriptor, FileDescriptor


def enable_reflection(service_names: Iterable[str], server: grpc.aio.Server) -> None:
    """Let clients list and describe these services, and reflection itself."""
    names = (*service_names, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server, pool=json_named_pool(names))


def json_named_pool(service_names: Iterable[str]) -> descriptor_pool.DescriptorPool:
    """The files of these services, and all that they need, with every `json_name` set."""
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()
    for name in service_names:
        _add(pool, descriptor_pool.Default().FindServiceByName(name).file, added)
    _add(pool, error_details_pb2.DESCRIPTOR, added)
    return pool


def _add(pool: descriptor_pool.DescriptorPool, file: FileDescriptor, added: set[str]) -> None:
    """Add a file after the files that it imports."""
    if file.name in added:
        return
    added.add(file.name)
    for dependency in file.dependencies:
        _add(pool, dependency, added)
    copy = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(copy)
    for message in copy.message_type:
        _name_fields(message, file.message_types_by_name[message.name])
    pool.AddSerializedFile(copy.SerializeToString())


def _name_fields(copy: descriptor_pb2.DescriptorProto, message: Descriptor) -> None:
    for field in copy.field:
        field.json_name = message.fields_by_name[field.name].json_name
    for nested in copy.nested_type:
        _name_fields(nested, message.nested_types_by_name[nested.name])
