"""The memory of vectors as numbers: bounded, and the oldest go first."""

from __future__ import annotations

from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st
from warmindex.vector_memory import BYTES_PER_NUMBER, VectorMemory

keys = st.integers(0, 5).map(lambda n: bytes([n]))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.dictionaries(keys, st.integers(1, 4), max_size=3)),
        st.tuples(st.just("get"), st.lists(keys, max_size=3)),
    ),
    max_size=20,
)


@given(steps, st.integers(0, 12))
def test_it_holds_what_was_asked_for_last_and_never_more_than_its_limit(
    given_steps: list[tuple[str, object]], numbers_max: int
):
    """The same as a plain model after every step."""
    memory = VectorMemory(numbers_max * BYTES_PER_NUMBER)
    model: OrderedDict[bytes, list[float]] = OrderedDict()
    for kind, what in given_steps:
        if kind == "put":
            assert isinstance(what, dict)
            rows = {key: [0.5] * width for key, width in what.items()}
            memory.put(rows)
            for key, row in rows.items():
                model.pop(key, None)
                model[key] = row
            while sum(map(len, model.values())) > numbers_max:
                model.popitem(last=False)
        else:
            assert isinstance(what, list)
            assert memory.get(what) == {key: model[key] for key in what if key in model}
            for key in what:
                if key in model:
                    model.move_to_end(key)
        assert len(memory) == len(model)
    assert memory.get(list(model)) == model
