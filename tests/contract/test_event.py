"""CacheEvent as its oldest producers send it, and as JSON shows it."""

from __future__ import annotations

import base64

import pytest
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor as Field
from warmindex.v1 import error_reason_pb2, event_pb2, index_service_pb2
from warmindex.v1.event_pb2 import CacheEvent

# Settled for good: producers in use send these, and have never heard of the others.
OLD_FIELDS = {
    1: ("type", Field.TYPE_ENUM, False),
    2: ("replica_id", Field.TYPE_STRING, False),
    3: ("model_id", Field.TYPE_STRING, False),
    4: ("tenant_id", Field.TYPE_STRING, False),
    5: ("content_hashes", Field.TYPE_BYTES, True),
    6: ("timestamp_us", Field.TYPE_INT64, False),
    7: ("adapter_id", Field.TYPE_STRING, False),
    8: ("adapter_scoped", Field.TYPE_BOOL, False),
}

FILES = (event_pb2.DESCRIPTOR, index_service_pb2.DESCRIPTOR, error_reason_pb2.DESCRIPTOR)


@pytest.mark.parametrize("number", OLD_FIELDS)
def test_the_old_fields_keep_number_and_type(number: int):
    """Fields 1 to 8 are what they always were, and none of them tracks its presence."""
    field = CacheEvent.DESCRIPTOR.fields_by_number[number]
    assert (field.name, field.type, field.is_repeated) == OLD_FIELDS[number]
    assert not field.has_presence


def test_the_types_of_event_keep_their_numbers():
    """3 is a liveness event elsewhere: no value here may ever take it."""
    assert dict(CacheEvent.Type.items()) == {
        "TYPE_UNSPECIFIED": 0,
        "EMBEDDED": 1,
        "EVICTED": 2,
        "ALL_CLEARED": 4,
    }


def varint_field(number: int, value: int) -> bytes:
    assert value < 128, "one byte is enough here"
    return bytes([number << 3, value])


def text_field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2, len(value)]) + value


# Built by hand, so that it does not change where the stubs do.
OLD_MESSAGE = (
    varint_field(1, 2)
    + text_field(2, b"pod-7")
    + text_field(3, b"acme/m1")
    + text_field(4, b"blue")
    + text_field(5, b"\x11" * 32)
    + text_field(5, b"\x22" * 32)
    + varint_field(6, 99)
    + text_field(7, b"sql-lora")
)


def test_a_message_of_an_old_producer_decodes_unchanged():
    """Bytes with nothing past field 7 say the same here as where they were made."""
    event = CacheEvent.FromString(OLD_MESSAGE)
    assert event == CacheEvent(
        type=CacheEvent.EVICTED,
        replica_id="pod-7",
        model_id="acme/m1",
        tenant_id="blue",
        content_hashes=[b"\x11" * 32, b"\x22" * 32],
        timestamp_us=99,
        adapter_id="sql-lora",
        adapter_scoped=False,
    )
    assert event.SerializeToString(deterministic=True) == OLD_MESSAGE


def test_an_old_reader_keeps_what_it_does_not_know():
    """An event with new fields still begins with the old ones, in the old encoding."""
    event = CacheEvent.FromString(OLD_MESSAGE)
    event.hash_scheme = "text-sha256"
    event.epoch = 5
    event.sequence = 1
    assert event.SerializeToString(deterministic=True).startswith(OLD_MESSAGE)


def test_json_names_are_the_field_names_in_camel_case():
    """No field has a JSON name of its own: content_hashes is contentHashes, and so on."""
    for file in FILES:
        for message in every_message(list(file.message_types_by_name.values())):
            for field in message.fields:
                first, *rest = field.name.split("_")
                assert field.json_name == first + "".join(word.capitalize() for word in rest)


def every_message(messages):
    for message in messages:
        yield message
        yield from every_message(message.nested_types)


def test_json_writes_bytes_numbers_and_enums_as_documented():
    """Bytes are base64, 64-bit numbers are strings, enum values are their names."""
    event = CacheEvent(
        type=CacheEvent.EMBEDDED,
        content_hashes=[b"\xfb\xff" * 16],
        timestamp_us=9007199254740993,
        token_count=16,
        tier=event_pb2.CACHE_TIER_HOST,
        adapter_scoped=True,
    )
    assert json_format.MessageToDict(event) == {
        "type": "EMBEDDED",
        "contentHashes": [base64.b64encode(b"\xfb\xff" * 16).decode()],
        "timestampUs": "9007199254740993",
        "tokenCount": 16,
        "tier": "CACHE_TIER_HOST",
        "adapterScoped": True,
    }


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_json_reads_either_alphabet_of_base64(encode):
    """The URL-safe alphabet gives the same bytes."""
    key = b"\xfb\xff" * 16
    document = {"contentHashes": [encode(key).decode()]}
    assert json_format.ParseDict(document, CacheEvent()).content_hashes == [key]


def test_a_hex_digest_in_json_becomes_48_bytes():
    """64 hex digits are valid base64, which is why a key of 48 bytes is told so."""
    document = {"contentHashes": ["ab" * 32]}
    (key,) = json_format.ParseDict(document, CacheEvent()).content_hashes
    assert len(key) == 48
