"""Records as bytes: what goes in comes out, and damage never does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.journals import batches_of
from support.records import embedded, parts, records, same
from warmindex.errors import InvalidError
from warmindex.event import CacheEvent, EventType
from warmindex.record import Lease
from warmindex_server.journal import codec
from warmindex_server.journal.frame import CodecError, put_frame

# A frame as release 0.1 stores it: a lease of 30 s of the replica "pod-7".
STORED_LEASE = (
    "0824a886ee519a2501030000110000000000000000000000"
    "0a05706f642d371204626c756518b0ea0100000000000000"
)


@given(records | parts)
def test_what_is_stored_is_what_is_read(item):
    """Every record and every part comes back bit for bit."""
    assert same(codec.decode(codec.encode(item)), item)


@given(st.lists(records, max_size=8))
def test_frames_stand_one_after_the_other(items):
    """Frames of several records are their frames put together, and read in order."""
    frames = b"".join(map(codec.encode, items))
    back = list(codec.decode_all(frames))
    assert len(back) == len(items)
    assert all(same(new, old) for new, old in zip(back, items, strict=True))


@settings(max_examples=40)
@given(records, st.data())
def test_a_changed_byte_is_found(item, data):
    """No byte of a frame can change unnoticed."""
    frame = bytearray(codec.encode(item))
    place = data.draw(st.integers(0, len(frame) - 1))
    frame[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CodecError):
        codec.decode(bytes(frame))


@settings(max_examples=40)
@given(records, st.data())
def test_a_cut_frame_is_found(item, data):
    """A frame that ends too early, or too late, is no frame."""
    frame = codec.encode(item)
    with pytest.raises(CodecError):
        codec.decode(frame[: data.draw(st.integers(0, len(frame) - 1))])
    with pytest.raises(CodecError, match="follow"):
        codec.decode(frame + bytes(24))


def test_frames_of_earlier_releases_are_read():
    """The stored form is a promise: these bytes mean this lease for ever."""
    lease = Lease(replica_id="pod-7", tenant_id="blue", ttl_ms=30_000)
    assert codec.encode(lease).hex() == STORED_LEASE
    assert codec.decode(bytes.fromhex(STORED_LEASE)) == lease


def test_a_frame_of_a_newer_release_says_so():
    """A kind that is not known is told apart from damage."""
    pieces: list[bytes | memoryview] = []
    put_frame(pieces, 99, b"")  # type: ignore[arg-type]
    with pytest.raises(CodecError, match="newer release"):
        codec.decode(b"".join(pieces))


def test_vectors_are_read_in_place():
    """Vectors are views of the frame's bytes, at an address that float32 wants."""
    frame = codec.encode(embedded(3, hashes=5, dimensions=7))
    event = codec.decode(frame)
    assert isinstance(event, CacheEvent)
    assert event.embeddings is not None
    assert event.embeddings.flags.aligned
    assert np.shares_memory(event.embeddings, np.frombuffer(frame, dtype=np.uint8))


def test_vectors_of_any_layout_are_stored():
    """A matrix that is a view, transposed or strided, is stored row by row."""
    rows = np.arange(1, 25, dtype=np.float32).reshape(4, 6).T[::2]
    event = CacheEvent(
        type=EventType.EMBEDDED,
        replica_id="r",
        model_id="m",
        content_hashes=[bytes([place]) * 32 for place in range(3)],
        embeddings=rows,
    )
    back = codec.decode(codec.encode(event))
    assert isinstance(back, CacheEvent)
    assert np.array_equal(back.embeddings, rows)


def test_groups_are_bounded(monkeypatch):
    """Frames are grouped up to a size, and none of them is lost or out of order."""
    monkeypatch.setattr(codec, "BATCH_BYTES", 1000)
    items = [embedded(number, hashes=3) for number in range(50)]
    groups = codec.encode_groups(items)
    assert sum(count for count, _ in groups) == 50
    assert all(len(frames) < 1000 + 300 for _, frames in groups)
    back = [item for _, frames in groups for item in codec.decode_all(frames)]
    assert all(map(same, back, items))


async def test_parts_are_packed_however_they_come(monkeypatch):
    """Many small batches make few pieces, a large part a piece of its own; none is lost."""
    monkeypatch.setattr(codec, "PACK_BYTES", 1000)
    parts = [embedded(number, hashes=2 if number % 10 else 60) for number in range(50)]
    pieces = [piece async for piece in codec.pack_parts(batches_of(*([part] for part in parts)))]
    assert len(pieces) < 20
    assert all(len(piece) < 1000 + 60 * 32 + 200 for piece in pieces)
    back = [part for piece in pieces for part in codec.decode_all(piece)]
    assert len(back) == 50
    assert all(map(same, back, parts))


def test_a_record_that_no_journal_takes_is_refused(monkeypatch):
    """A record above the limit is the caller's fault, and the error says what to do."""
    monkeypatch.setattr(codec, "RECORD_BYTES_MAX", 1000)
    with pytest.raises(InvalidError, match="at most 1000"):
        codec.encode_groups([embedded(1, hashes=100)])
