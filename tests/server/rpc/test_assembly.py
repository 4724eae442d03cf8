"""An assembled answer is what the message's own serializer makes of it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from warmindex.v1 import index_service_pb2 as pb
from warmindex_server.rpc.assembly import embeddings_response

# Around every length at which a varint takes one byte more.
lengths = st.sampled_from((0, 1, 2, 127, 128, 129, 16383, 16384, 16385))
numbers = lengths | st.integers(0, 2**64 - 1)


@given(
    states=st.lists(st.integers(1, 5), max_size=300),
    dimensions=st.integers(1, 8192),
    rows=st.integers(0, 3),
    cut=st.integers(0, 100_000),
    revision=numbers,
    history_id=st.text(max_size=200),
)
def test_it_is_the_message(states, dimensions, rows, cut, revision, history_id):
    """Byte for byte, whatever the sizes, and however many pieces the rows come in."""
    matrix = np.arange(rows * dimensions, dtype=np.float32).reshape(rows, dimensions)
    values = matrix.tobytes()
    pieces = [memoryview(part) for part in (values[:cut], values[cut:]) if part]
    message = pb.GetEmbeddingsResponse(states=states, revision=revision, history_id=history_id)
    if rows:
        message.embeddings.dimensions = dimensions
        message.embeddings.values = values
    made = embeddings_response(bytes(states), dimensions, pieces, revision, history_id)
    assert made == message.SerializeToString(deterministic=True)


@given(states=lengths, rows=lengths)
def test_long_answers_have_long_lengths(states, rows):
    """Where a length needs another byte of its own, it has it."""
    piece = memoryview(bytes(4 * rows)) if rows else None
    made = embeddings_response(b"\2" * states, 1, [piece] if piece else [], 7, "h")
    message = pb.GetEmbeddingsResponse.FromString(made)
    assert len(message.states) == states
    assert len(message.embeddings.values) == 4 * rows
    assert (message.revision, message.history_id) == (7, "h")
