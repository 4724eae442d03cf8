"""Reflection tells what JSON calls each field."""

from __future__ import annotations

from google.protobuf import descriptor_pb2
from warmindex.v1 import index_service_pb2
from warmindex_server.rpc.reflection import json_named_pool
from warmindex_server.rpc.service import IndexService


def fields(message):
    yield from message.field
    for nested in message.nested_type:
        yield from fields(nested)


def test_every_field_is_reflected_with_its_json_name():
    """grpcurl prints contentHashes because the reflected field says so, nested ones too."""
    pool = json_named_pool([IndexService.NAME])
    reflected = descriptor_pb2.FileDescriptorProto()
    for name in ("event", "index_service"):
        file = pool.FindFileByName(f"warmindex/v1/{name}.proto")
        file.CopyToProto(reflected)
        names = {
            field.name: field.json_name
            for message in reflected.message_type
            for field in fields(message)
        }
        assert all(names.values())
        reflected.Clear()
        if name == "event":
            assert names["content_hashes"] == "contentHashes"
        else:
            assert names["matched_blocks"] == "matchedBlocks"


def test_the_reflected_contract_is_the_contract():
    """But for the names, nothing is added and nothing is lost."""
    pool = json_named_pool([IndexService.NAME])
    reflected = descriptor_pb2.FileDescriptorProto()
    original = descriptor_pb2.FileDescriptorProto()
    pool.FindFileByName("warmindex/v1/index_service.proto").CopyToProto(reflected)
    index_service_pb2.DESCRIPTOR.CopyToProto(original)
    for message in reflected.message_type:
        for field in fields(message):
            field.ClearField("json_name")
    assert reflected == original
