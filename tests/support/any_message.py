"""Strategies for messages: of any kind, from their descriptors, or spoilt copies of good ones."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

# Around the limits of the wire and of the contract.
COUNTS = (0, 1, 2, 3, 4, 9, 127, 128, 1000, 1001, 4096, 8192, 8193, 2**31 - 1)
TEXTS = (
    "",
    "acme/m1",
    "pod-1",
    "text-sha256",
    "xxh3-chain/16",
    "xxh3-chain/0",
    "x" * 300,
    "\0",
    "é\N{GRINNING FACE}",
    '"NEAR(',
)
# Hashes of every length that matters, and rows of two numbers: NaN, zero, one.
BYTES = (
    b"",
    b"\1" * 8,
    b"\2" * 32,
    b"\3" * 48,
    b"\4" * 65,
    b"\0\0\xc0\x7f" * 2,
    bytes(8),
    b"\0\0\x80\x3f" * 2,
)
# A call that waits for what never comes is another test's.
LEFT_OUT = frozenset({"wait", "min_revision"})

_counts = st.sampled_from(COUNTS)
_VALUES: dict[int, st.SearchStrategy[Any]] = {
    Field.CPPTYPE_INT32: _counts | st.integers(-(2**31), 2**31 - 1),
    Field.CPPTYPE_INT64: _counts | st.integers(-(2**63), 2**63 - 1),
    Field.CPPTYPE_UINT32: _counts | st.integers(0, 2**32 - 1),
    Field.CPPTYPE_UINT64: _counts | st.integers(0, 2**64 - 1),
    Field.CPPTYPE_FLOAT: st.floats(width=32),
    Field.CPPTYPE_DOUBLE: st.floats(),
    Field.CPPTYPE_BOOL: st.booleans(),
    Field.CPPTYPE_ENUM: st.integers(-1, 10),
}


def _value(field: Field) -> st.SearchStrategy[Any]:
    if field.cpp_type == Field.CPPTYPE_MESSAGE:
        return messages(field.message_type)
    if field.cpp_type == Field.CPPTYPE_STRING:
        if field.type == Field.TYPE_BYTES:
            return st.sampled_from(BYTES) | st.binary(max_size=70)
        return st.sampled_from(TEXTS) | st.text(max_size=20)
    return _VALUES[field.cpp_type]


@st.composite
def messages(draw: st.DrawFn, descriptor: Descriptor) -> Any:
    """A message of a kind, with some of its fields set to anything."""
    message = GetMessageClass(descriptor)()
    fields = [field for field in descriptor.fields if field.name not in LEFT_OUT]
    for field in fields:
        if not draw(st.integers(0, 3)):
            continue
        if not field.is_repeated:
            value = draw(_value(field))
            if field.message_type:
                getattr(message, field.name).CopyFrom(value)
            else:
                setattr(message, field.name, value)
        else:
            getattr(message, field.name).extend(draw(st.lists(_value(field), max_size=3)))
    return message


@st.composite
def spoilt(draw: st.DrawFn, good: bytes) -> bytes:
    """The bytes of a message after a few accidents."""
    raw = bytearray(good)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(raw)))
        length = draw(st.integers(0, 12))
        match draw(st.sampled_from(("flip", "cut", "leave out", "repeat", "insert"))):
            case "flip" if at < len(raw):
                raw[at] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del raw[at:]
            case "leave out":
                del raw[at : at + length]
            case "repeat":
                raw[at:at] = raw[at : at + length]
            case "insert":
                raw[at:at] = draw(st.binary(max_size=length))
    return bytes(raw)
