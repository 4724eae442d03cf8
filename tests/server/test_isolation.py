"""Nothing crosses a partition: not a vector, a document, a route, a list or an entry.

One server holds the same keys under two values of each part of a partition's address, with
other content under each. Whatever is asked in one must be answered from that one alone.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from support.messages import event, key, publish_request
from support.server import ServerHere
from warmindex.event import PartitionKey
from warmindex.index.route import Reason

# Names that a careless key would take for one another.
TENANTS = ("", "blue")
MODELS = ("acme/m1", "acme/m1 ")
SCHEMES = ("text-sha256", "own")
ADAPTERS = ("", "sql-lora", "SQL-lora")
PLACES = [PartitionKey(*parts) for parts in product(TENANTS, MODELS, SCHEMES, ADAPTERS)]
KEYS = [key(number) for number in (1, 2)]


class Content(NamedTuple):
    """What there is in one place, and nowhere else."""

    replica: str
    vectors: np.ndarray
    word: str


def content(place: PartitionKey) -> Content:
    number = PLACES.index(place)
    vectors = np.array([[number + 1, 1], [1, -number - 1]], dtype=np.float32)
    return Content(f"pod-{number}", vectors, f"word{number:02}")


async def fill(server: ServerHere, places: list[PartitionKey]) -> None:
    for place in places:
        here = content(place)
        message = event(
            **place._asdict(), replica_id=here.replica, content_hashes=KEYS, token_count=16
        )
        message.embeddings.dimensions = 2
        message.embeddings.values = here.vectors.tobytes()
        for _ in KEYS:
            message.documents.add(name="tool", description=here.word)
        await server.stub.PublishEvent(publish_request(message))


@pytest.fixture
async def full(server) -> ServerHere:
    """Every place filled."""
    await fill(server, PLACES)
    return server


@pytest.fixture(params=range(len(PLACES)), ids=lambda number: "/".join(PLACES[number]) or "-")
def place(request) -> PartitionKey:
    """Each place in turn."""
    return PLACES[request.param]


async def test_a_fetch_stays_in_its_place(full, place):
    """The vectors are this partition's, bit for bit."""
    found = await full.client.get_embeddings(place, KEYS)
    assert found.vectors.tobytes() == content(place).vectors.tobytes()


async def test_a_search_stays_in_its_place(full, place):
    """By this partition's word its documents are found, by any other's nothing."""
    for other in PLACES:
        hits = await full.client.search(place, text=content(other).word)
        words = {hit.document.description for hit in hits}
        assert words == ({content(place).word} if other == place else set())
    by_meaning = await full.client.search(
        place, embedding=np.array([1, 1], np.float32), max_distance=2
    )
    assert {hit.document.description for hit in by_meaning} == {content(place).word}
    assert len(by_meaning) == len(KEYS)


async def test_a_route_stays_in_its_place(full, place):
    """Only who holds the blocks here is named; the scope's other adapters are only counted."""
    found = await full.client.lookup_route(place, block_hashes=KEYS)
    assert [match.replica_id for match in found.matches] == [content(place).replica]
    assert found.replicas_in_scope == len(ADAPTERS)
    unknown = await full.client.lookup_route(
        place._replace(adapter_id="nobody's"), block_hashes=KEYS
    )
    assert (list(unknown.matches), unknown.reason) == ([], Reason.NO_MATCH)


async def test_an_eviction_stays_in_its_place(full, place):
    """What goes in one partition goes in no other."""
    message = event(
        **place._asdict(),
        type=2,
        adapter_scoped=True,
        replica_id=content(place).replica,
        content_hashes=KEYS,
    )
    await full.stub.PublishEvent(publish_request(message))
    for other in PLACES:
        found = await full.client.get_embeddings(other, KEYS)
        assert len(found.vectors) == (0 if other == place else len(KEYS))


@pytest.mark.parametrize("tenant", TENANTS)
async def test_lists_are_one_tenants(full, tenant: str):
    """Partitions, replicas and entries of the tenant that asks, and of no other."""
    own = [place for place in PLACES if place.tenant_id == tenant]
    partitions = await full.client.partitions(tenant)
    assert [each.key for each in partitions] == sorted(own)
    replicas = await full.client.replicas(tenant)
    assert {each.replica_id for each in replicas} == {content(place).replica for place in own}
    entries = await full.client.entries(KEYS[0], tenant)
    assert [each.partition for each in entries] == sorted(own)
    for each in entries:
        assert each.document is not None
        assert each.document.description == content(each.partition).word
        assert [name for name, _ in each.holds] == [content(each.partition).replica]


async def test_a_list_of_one_model_is_of_no_other(full):
    """A model's name is taken whole, trailing blank and all."""
    for model in MODELS:
        partitions = await full.client.partitions("", model)
        assert {each.key.model_id for each in partitions} == {model}
        assert len(partitions) == len(SCHEMES) * len(ADAPTERS)


async def test_what_is_nowhere_is_not_found_next_door(server):
    """With one place filled, every other answers as if the server were empty."""
    for filled in PLACES[:3]:
        await fill(server, [filled])
    for place in PLACES[3:]:
        assert len((await server.client.get_embeddings(place, KEYS)).vectors) == 0
        assert await server.client.search(place, text="tool") == []
        assert not (await server.client.lookup_route(place, block_hashes=KEYS)).matches
    assert await server.client.partitions("blue") == []
    assert await server.client.replicas("blue") == []
    assert await server.client.entries(KEYS[0], "blue") == []
    blue = PartitionKey("blue", *PLACES[0][1:])
    assert (await server.client.lookup_route(blue, block_hashes=KEYS)).reason is (
        Reason.UNKNOWN_TENANT
    )


async def test_a_width_is_one_partitions(server):
    """Another partition's vectors may have another width."""
    for number, place in enumerate(PLACES, 1):
        message = event(**place._asdict())
        message.embeddings.dimensions = number
        message.embeddings.values = np.ones(number, "<f4").tobytes()
        await server.stub.PublishEvent(publish_request(message))
    partitions = [p for tenant in TENANTS for p in await server.client.partitions(tenant)]
    assert {each.key: each.dimensions for each in partitions} == {
        place: number for number, place in enumerate(PLACES, 1)
    }
