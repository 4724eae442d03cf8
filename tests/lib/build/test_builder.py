"""Builds: every text computed once, under the identity that it was computed under."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
import pytest
from support.building import items_of, numbered
from support.embedding_server import EmbeddingServer
from support.server import ServerHere
from warmindex.build import Builder, Item
from warmindex.client import IndexClient
from warmindex.embedders import FailureKind
from warmindex.event import CacheEvent, Document, EventType
from warmindex.hashing import text_hash
from warmindex.index import listing

Open = Callable[..., Builder]


def models_in(index: ServerHere) -> set[str]:
    """The models in which the index has anything."""
    return {info.key.model_id for info in listing.partitions(index.store.index, "", "", None, 99)}


async def test_a_cold_build_computes_each_text_and_a_warm_one_none(
    open_builder: Open, backend: EmbeddingServer
):
    """The second build of the same texts asks the backend for nothing, and gets the same bits."""
    items = numbered(140)
    cold = await open_builder().build(items)
    assert (cold.counts.embedded, cold.counts.reused, cold.failures) == (140, 0, {})
    assert backend.texts.total() == 140
    warm = await open_builder().build(items)
    assert (warm.counts.embedded, warm.counts.reused) == (0, 140)
    assert backend.texts.total() == 140
    for content_hash in items:
        np.testing.assert_array_equal(cold.vectors[content_hash], warm.vectors[content_hash])


async def test_long_documents_go_into_as_many_events_as_they_need(
    open_builder: Open, backend: EmbeddingServer
):
    """Sixty texts of 60 KB are more than one event may be, and all are published."""
    items = {
        text_hash(text): Item(text, Document(f"tool{number}", text))
        for number in range(60)
        for text in [f"{number} " + "d" * 60_000]
    }
    cold = await open_builder().build(items)
    assert (cold.counts.embedded, cold.counts.refused, cold.problems) == (60, 0, [])
    assert (await open_builder().build(items)).counts.reused == 60


async def test_progress_counts_up_to_the_number_of_texts(open_builder: Open):
    """Progress rises, and ends at the number of distinct texts."""
    told: list[int] = []
    await open_builder().build(numbered(100), told.append)
    assert told == sorted(told)
    assert told[-1] == 100


async def test_nothing_to_build_asks_nobody_but_for_the_identity(
    open_builder: Open, backend: EmbeddingServer
):
    """A build without texts is done at once."""
    built = await open_builder().build({})
    assert (built.vectors, built.failures) == ({}, {})
    assert backend.embed_count == 0


async def test_one_bad_text_fails_alone(open_builder: Open, backend: EmbeddingServer):
    """A text that the backend refuses, and a blank one, fail; the others are published."""
    backend.settings.fault_guilty = ["poison"]
    items = items_of("alpha", "poison here", "   ", "omega")
    built = await open_builder().build(items)
    kinds = {items[key].text: failure.kind for key, failure in built.failures.items()}
    assert kinds == {"poison here": FailureKind.REJECTED, "   ": FailureKind.BLANK}
    assert built.counts.embedded == 2
    assert built.counts.failures == {"rejected": 1, "blank": 1}
    assert "   " not in backend.texts


async def test_a_model_swapped_in_the_middle_starts_the_build_over(
    open_builder: Open, backend: EmbeddingServer, index: ServerHere
):
    """The batch between two identities is thrown away: nothing is stored under the first."""
    backend.settings.fault_swap_after = 0
    built = await open_builder().build(numbered(10))
    assert "m=acme/other" in built.model_id
    assert built.counts.swaps == 1
    assert models_in(index) == {built.model_id}
    assert len(built.vectors) == 10


async def test_a_model_that_keeps_changing_publishes_nothing(
    open_builder: Open, backend: EmbeddingServer, index: ServerHere
):
    """After starting over twice the build gives up, says so, and has published nothing."""
    names = iter(range(1000))
    original = backend._compute

    async def swapping(request, key):
        answer = await original(request, key)
        backend.settings.model_id = f"acme/m{next(names)}"
        return answer

    backend._compute = swapping  # type: ignore[method-assign]  # no switch does it every time
    built = await open_builder().build(numbered(5))
    assert models_in(index) == set()
    assert built.vectors == {}
    assert all(failure.retryable for failure in built.failures.values())
    assert "backends differ" in " ".join(built.problems)


async def test_an_identity_that_cannot_be_read_finds_under_the_last_and_publishes_nothing(
    open_builder: Open, backend: EmbeddingServer, index: ServerHere
):
    """With /info away, what was published is still found, and new vectors stay here."""
    builder = open_builder()
    first = await builder.build(items_of("alpha"))
    before = index.store.revision
    backend.settings.fault_replies = [{"path": "/info", "status": 500, "times": 99}]
    built = await builder.build(items_of("alpha", "beta"))
    assert built.model_id == first.model_id
    assert (built.counts.reused, built.counts.embedded) == (1, 1)
    assert len(built.vectors) == 2
    assert index.store.revision == before
    assert "identity" in built.problems[0]


async def test_without_any_identity_vectors_serve_this_build_alone(
    open_builder: Open, backend: EmbeddingServer, index: ServerHere
):
    """Where the identity was never read, nothing is asked of the index and nothing published."""
    backend.settings.fault_replies = [{"path": "/info", "status": 500, "times": 99}]
    built = await open_builder().build(items_of("alpha", "beta"))
    assert (built.model_id, len(built.vectors)) == ("", 2)
    assert models_in(index) == set()


async def test_a_path_without_a_revision_is_refused_and_says_what_to_configure(
    open_builder: Open, backend: EmbeddingServer, index: ServerHere
):
    """A model that is only a folder's name could be any model: nothing is shared under it."""
    backend.settings.model_id, backend.settings.model_sha = "/data", ""
    backend.settings.fault_info_without = ["model_sha"]
    built = await open_builder().build(items_of("alpha"))
    assert models_in(index) == set()
    assert "revision" in built.problems[0]
    configured = await open_builder(embedder={"revision": "2026-11"}).build(items_of("alpha"))
    assert models_in(index) == {configured.model_id}


async def test_an_index_that_is_away_costs_speed_only(open_builder: Open, backend: EmbeddingServer):
    """Without an index every text is embedded here, and the build says so."""
    async with IndexClient("127.0.0.1:9", timeout_s=1) as nobody:
        built = await open_builder(client=nobody).build(numbered(70))
    assert (len(built.vectors), built.counts.embedded) == (70, 70)
    assert built.counts.index_errors == 1
    assert "cannot reach" in built.problems[0]
    assert backend.texts.total() == 70


async def test_an_index_that_goes_away_in_the_middle_costs_speed_only(
    open_builder: Open, backend: EmbeddingServer, index: ServerHere
):
    """A server that stops during a build leaves the build whole."""
    backend.settings.batch_sleep_ms = 100
    building = asyncio.create_task(open_builder().build(numbered(200)))
    await asyncio.sleep(0.25)
    await index.server.stop()
    built = await building
    assert len(built.vectors) == 200
    assert backend.texts.total() == 200


async def test_a_backend_that_is_away_leaves_what_the_index_has(
    open_builder: Open, backend: EmbeddingServer
):
    """Known texts are reused, the others fail for now and may be tried again."""
    builder = open_builder(embedder={"request_timeout_s": 1.0})
    await builder.build(items_of("alpha"))
    backend.settings.fault_replies = [{"path": "/embed", "status": 503, "times": 999}]
    built = await builder.build(items_of("alpha", "beta"))
    assert (built.counts.reused, built.counts.embedded, built.counts.failed) == (1, 0, 1)
    assert [failure.retryable for failure in built.failures.values()] == [True]


async def test_claims_of_texts_that_failed_are_given_up(
    open_builder: Open, backend: EmbeddingServer
):
    """Another builder need not wait for the claim of one that could not compute."""
    backend.settings.fault_guilty = ["beta"]
    await open_builder().build(items_of("alpha", "beta"))
    backend.settings.fault_guilty = []
    built = await asyncio.wait_for(open_builder().build(items_of("beta")), 5)
    assert built.counts.embedded == 1


@pytest.mark.parametrize("builders", [2, 8])
async def test_builders_that_start_together_compute_each_text_once(
    open_builder: Open, backend: EmbeddingServer, builders: int
):
    """All are whole, and the backend has seen every text exactly once."""
    backend.settings.batch_sleep_ms = 30
    items = numbered(140)
    built = await asyncio.gather(*(open_builder().build(items) for _ in range(builders)))
    assert backend.texts.total() == 140
    assert all(len(each.vectors) == 140 for each in built)
    assert sum(each.counts.embedded for each in built) == 140
    for each in built:
        assert each.counts.embedded + each.counts.waited + each.counts.reused == 140


async def test_patience_ends(open_builder: Open, index: ServerHere):
    """A text that somebody else has claimed and never publishes is computed here in the end."""
    builder = open_builder(patience_s=0.5)
    items = items_of("alpha")
    partition = builder.partition(await builder.current_model_id())
    await index.client.get_embeddings(partition, list(items), claimant_id="dead", claim_ttl_s=60)
    built = await builder.build(items)
    assert built.counts.embedded == 1


async def test_a_claim_that_falls_is_taken_up(open_builder: Open, index: ServerHere):
    """When a claimant dies its claim ends, and whoever waits computes the text."""
    builder = open_builder()
    items = items_of("alpha")
    partition = builder.partition(await builder.current_model_id())
    await index.client.get_embeddings(partition, list(items), claimant_id="dead", claim_ttl_s=0.5)
    built = await builder.build(items)
    assert (built.counts.claimed, built.counts.embedded) == (1, 1)


async def test_adapters_have_partitions_of_their_own(open_builder: Open, index: ServerHere):
    """The same texts under another adapter are other entries."""
    items = items_of("alpha")
    await open_builder().build(items)
    built = await open_builder(adapter_id="legal", embedder={"adapter_rule": None}).build(items)
    assert built.counts.embedded == 1
    found = listing.entries(index.store.index, "", next(iter(items)), None, 9)
    assert [entry.key.adapter_id for entry in found] == ["", "legal"]


async def test_texts_stay_at_home_where_no_document_is_given(open_builder: Open, index: ServerHere):
    """An item without a document publishes its vector alone."""
    items = {key: type(item)(item.text) for key, item in items_of("secret plan").items()}
    await open_builder().build(items)
    (entry,) = listing.entries(index.store.index, "", next(iter(items)), None, 9)
    assert (entry.document, entry.dimensions) == (None, 64)


async def test_what_was_found_is_held_where_that_is_asked_for(
    open_builder: Open, index: ServerHere
):
    """A catalogue's holds keep what others computed, when those let go."""
    items = items_of("alpha")
    await open_builder(replica_id="one").build(items)
    built = await open_builder(replica_id="two", hold_found=True).build(items)
    assert built.counts.reused == 1
    await index.client.publish(
        CacheEvent(type=EventType.ALL_CLEARED, replica_id="one", model_id=built.model_id)
    )
    (entry,) = listing.entries(index.store.index, "", next(iter(items)), None, 9)
    assert [name for name, _ in entry.holds] == ["two"]
    assert entry.dimensions == 64


async def test_a_holder_computes_nothing_that_it_cannot_publish(
    open_builder: Open, index: ServerHere, backend: EmbeddingServer
):
    """With the identity unreadable, or the index away, its texts fail for now and are not sent."""
    holder = open_builder(hold_found=True)
    backend.settings.fault_replies = [{"path": "/info", "status": 500, "times": 2}]
    built = await holder.build(numbered(3))
    assert {failure.retryable for failure in built.failures.values()} == {True}
    assert (len(built.failures), backend.embed_count) == (3, 0)
    backend.settings.fault_replies = []
    assert (await holder.build(numbered(3))).counts.embedded == 3
    await index.server.stop()
    built = await holder.build(numbered(5))
    assert (len(built.failures), backend.texts.total()) == (5, 3)
