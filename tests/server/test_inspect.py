"""ListPartitions, ListReplicas, GetEntry, GetServerInfo: what is shown, page by page."""

from __future__ import annotations

import base64
import json

import grpc
import pytest
from support.bad_requests import BadRequest, assert_refused
from support.messages import (
    ALL_CLEARED,
    MODEL,
    block,
    documents,
    event,
    key,
    publish_request,
)
from support.server import ServerHere, fault_of
from warmindex import __version__
from warmindex.event import Document, Tier
from warmindex.v1 import event_pb2
from warmindex.v1 import index_service_pb2 as pb
from warmindex.v1.index_service_pb2_grpc import IndexServiceStub


async def publish(server: ServerHere, **fields: object) -> None:
    await server.stub.PublishEvent(publish_request(event(**fields)))


async def fill(server: ServerHere) -> None:
    """Two tenants, two models, three adapters, two schemes, three replicas."""
    for model in (MODEL, "acme/m2"):
        for adapter in ("", "chat-lora", "sql-lora"):
            await publish(server, model_id=model, adapter_id=adapter, embeddings=block([1.0, 2.0]))
    await publish(server, replica_id="pod-2", documents=documents("one"), tier=2)
    await publish(server, replica_id="pod-3", hash_scheme="own", content_hashes=[key(1), b"x"])
    await publish(server, tenant_id="blue", replica_id="pod-9", adapter_id="blue-lora")


async def pages(server: ServerHere, method: str, request, items: str, size: int) -> list[list]:
    """All pages of a list, `size` items each but for the last."""
    request.page_size = size
    found = []
    while True:
        page = await getattr(server.stub, method)(request)
        found.append(list(getattr(page, items)))
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


# ---- what is shown -----------------------------------------------------------------------


async def test_partitions_and_their_sizes(server):
    """Each with its key, its counts and its width, in key order."""
    await fill(server)
    answer = await server.stub.ListPartitions(pb.ListPartitionsRequest(model_id=MODEL))
    shown = [
        (p.key.hash_scheme, p.key.adapter_id, p.entries, p.embeddings, p.dimensions, p.replicas)
        for p in answer.partitions
    ]
    assert shown == [
        ("own", "", 2, 0, 0, 1),
        ("text-sha256", "", 1, 1, 2, 2),
        ("text-sha256", "chat-lora", 1, 1, 2, 1),
        ("text-sha256", "sql-lora", 1, 1, 2, 1),
    ]
    assert all(p.key.model_id == MODEL and not p.key.tenant_id for p in answer.partitions)
    assert all(p.memory_bytes > 0 for p in answer.partitions)
    assert answer.revision == server.store.revision


async def test_replicas_and_what_they_hold(server):
    """By name and model, with their numbers."""
    await fill(server)
    await publish(server, replica_id="pod-2", epoch=4, sequence=3)
    answer = await server.stub.ListReplicas(pb.ListReplicasRequest())
    shown = [
        (r.replica_id, r.model_id, r.holds, r.epoch, r.sequence, r.resync_required)
        for r in answer.replicas
    ]
    assert shown == [
        ("pod-1", MODEL, 3, 0, 0, False),
        ("pod-1", "acme/m2", 3, 0, 0, False),
        ("pod-2", MODEL, 2, 4, 3, True),
        ("pod-3", MODEL, 2, 0, 0, False),
    ]
    assert all(r.HasField("heard_ago") for r in answer.replicas)
    assert not any(r.HasField("lease_remaining") for r in answer.replicas)


async def test_an_entry_wherever_it_is(server):
    """In every partition and scheme of the tenant, with holders, text and width."""
    await fill(server)
    answer = await server.stub.GetEntry(pb.GetEntryRequest(content_hash=key(1)))
    shown = [
        (
            e.partition.model_id,
            e.partition.hash_scheme,
            e.partition.adapter_id,
            [(hold.replica_id, hold.tier) for hold in e.holds],
            e.document.name if e.HasField("document") else None,
            e.dimensions,
        )
        for e in answer.entries
    ]
    text = "text-sha256"
    assert shown == [
        (MODEL, "own", "", [("pod-3", 1)], None, 0),
        (MODEL, text, "", [("pod-1", 1), ("pod-2", 2)], "one", 2),
        (MODEL, text, "chat-lora", [("pod-1", 1)], None, 2),
        (MODEL, text, "sql-lora", [("pod-1", 1)], None, 2),
        *(
            ("acme/m2", text, each, [("pod-1", 1)], None, 2)
            for each in ("", "chat-lora", "sql-lora")
        ),
    ]


async def test_an_entry_that_is_nowhere(server):
    """Any bytes may be asked for: nothing is found, and nothing is wrong."""
    await fill(server)
    for content_hash in (key(9), b"?", bytes(48), bytes(1000)):
        answer = await server.stub.GetEntry(pb.GetEntryRequest(content_hash=content_hash))
        assert list(answer.entries) == []


async def test_the_server_itself(server):
    """Version, journal, history, revision, and how much there is."""
    await fill(server)
    info = await server.stub.GetServerInfo(pb.GetServerInfoRequest())
    assert (info.version, info.journal, info.entries) == (__version__, "memory", 9)
    assert info.revision == server.store.revision
    assert info.history_id


async def test_what_is_cleared_is_not_shown(server):
    """A clear is visible at once in every list, before any memory is given back."""
    await fill(server)
    await publish(server, type=ALL_CLEARED)
    partitions = await server.client.partitions(model_id=MODEL)
    assert [(p.key.hash_scheme, p.entries, p.embeddings) for p in partitions] == [
        ("own", 2, 0),
        ("text-sha256", 1, 1),
    ]
    names = {replica.replica_id for replica in await server.client.replicas()}
    assert names == {"pod-1", "pod-2", "pod-3"}
    entries = await server.client.entries(key(1))
    assert ("pod-1", Tier.DEVICE) not in {h for e in entries[:2] for h in e.holds}


async def test_the_client_reads_every_page(server):
    """Lists of the client are whole, however many pages they take."""
    for number in range(130):
        await publish(server, adapter_id=f"lora-{number:03}", replica_id=f"pod-{number:03}")
    assert len(await server.client.partitions()) == 130
    assert [r.replica_id for r in await server.client.replicas()] == [
        f"pod-{number:03}" for number in range(130)
    ]
    entries = await server.client.entries(key(1))
    assert [entry.partition.adapter_id for entry in entries] == [
        f"lora-{number:03}" for number in range(130)
    ]
    assert entries[0].holds == [("pod-000", Tier.DEVICE)]
    assert entries[0].document is None


async def test_a_document_comes_with_its_entry(server):
    """As it was published."""
    await publish(server, documents=documents("one"))
    (entry,) = await server.client.entries(key(1))
    assert entry.document == Document("one", "about one")


# ---- pages -------------------------------------------------------------------------------

LISTS = [
    ("ListPartitions", pb.ListPartitionsRequest, "partitions"),
    ("ListReplicas", pb.ListReplicasRequest, "replicas"),
    ("GetEntry", lambda **f: pb.GetEntryRequest(content_hash=key(1), **f), "entries"),
]
each_list = pytest.mark.parametrize(
    ("method", "make", "items"), LISTS, ids=[method for method, _, _ in LISTS]
)


@each_list
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
async def test_pages_add_up_to_the_list(server, method: str, make, items: str, size: int):
    """Nothing is left out and nothing is shown twice, whatever the size of a page."""
    await fill(server)
    (whole,) = await pages(server, method, make(), items, 0)
    found = await pages(server, method, make(), items, size)
    assert [len(page) for page in found[:-1]] == [size] * (len(found) - 1)
    assert [bare(item) for page in found for item in page] == [bare(item) for item in whole]
    assert len(whole) > 3


def bare(item) -> bytes:
    """An item without what passes with time."""
    if hasattr(item, "heard_ago"):
        item.ClearField("heard_ago")
    return item.SerializeToString(deterministic=True)


@each_list
async def test_a_page_ends_where_the_list_does(server, method: str, make, items: str):
    """A list of just one page has no token."""
    await fill(server)
    (whole,) = await pages(server, method, make(), items, 0)
    assert len(await pages(server, method, make(), items, len(whole))) == 1


@each_list
async def test_pages_go_on_where_they_were_although_things_change(server, method, make, items):
    """What comes up before the place is not shown, what comes up behind it is."""
    for name in ("b", "d"):
        await publish(server, adapter_id=name, replica_id=name)
    first = await getattr(server.stub, method)(make(page_size=1))
    for name in ("a", "c"):
        await publish(server, adapter_id=name, replica_id=name)
    rest = await getattr(server.stub, method)(make(page_token=first.next_page_token))
    assert len(getattr(rest, items)) == 2


async def test_entries_with_long_texts_come_in_shorter_pages(server):
    """A client with default options, which takes 4 MiB, can read every page."""
    text = [event_pb2.Document(name="tool", description="x" * 65000)]
    for number in range(100):
        await publish(server, adapter_id=f"{number:03}", documents=text)
    request = pb.GetEntryRequest(content_hash=key(1))
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = IndexServiceStub(channel)
        sizes = []
        while True:
            page = await stub.GetEntry(request)
            sizes.append(len(page.entries))
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
    assert sum(sizes) == 100
    assert len(sizes) == 3


async def test_names_of_any_kind_can_be_the_place(server):
    """Long, odd and non-Latin names are in the token as they are."""
    for name in ("語" * 85, "\N{GRINNING FACE}" * 64, '"\\', " ", "\0"):
        await publish(server, model_id=name * 8, adapter_id=name, replica_id=name)
    for method, make, items in LISTS:
        found = await pages(server, method, make(), items, 1)
        assert [len(page) for page in found] == [1] * 5


def token(*parts: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()


FOREIGN_TOKENS = [
    "x",
    "====",
    "\N{GRINNING FACE}",
    "\0",
    "A" * 1_000_000,
    base64.urlsafe_b64encode(b"[" * 100_000).decode(),
    base64.urlsafe_b64encode(b"9" * 100_000).decode(),
    base64.urlsafe_b64encode(b"\xff\xfe").decode(),
    token(),
    token("partitions"),
    token("partitions", MODEL, "text-sha256"),
    token("partitions", MODEL, "text-sha256", 7),
    token("partitions", MODEL, "text-sha256", "", ""),
    token("nothing", "a", "b", "c"),
    token(["partitions"], "a", "b", "c"),
    token(None, None, None, None),
]


@each_list
@pytest.mark.parametrize("page_token", FOREIGN_TOKENS, ids=lambda text: repr(text[:16]))
async def test_a_token_of_nobodys_is_refused(server, method, make, items, page_token: str):
    """Whatever was made up or cut is told to begin again."""
    fault = await fault_of(getattr(server.stub, method)(make(page_token=page_token)))
    assert (fault.status, fault.reason, fault.field) == (
        "INVALID_ARGUMENT",
        "ERROR_REASON_PAGE_TOKEN",
        "page_token",
    )
    assert "begin the list again" in fault.message


async def test_a_token_of_another_list_is_refused(server):
    """A place in one list is no place in another."""
    await fill(server)
    for method, make, _ in LISTS:
        page = await getattr(server.stub, method)(make(page_size=1))
        for other, make_other, _ in LISTS:
            call = getattr(server.stub, other)(make_other(page_token=page.next_page_token))
            if other == method:
                await call
            else:
                assert (await fault_of(call)).reason == "ERROR_REASON_PAGE_TOKEN"


async def test_a_token_opens_no_other_tenants_list(server):
    """It says where to go on, not whose list it is: that is the request's."""
    await fill(server)
    page = await server.stub.ListPartitions(pb.ListPartitionsRequest(page_size=1))
    blue = pb.ListPartitionsRequest(tenant_id="blue", page_token=page.next_page_token)
    shown = (await server.stub.ListPartitions(blue)).partitions
    assert [p.key.adapter_id for p in shown] == ["blue-lora"]


# ---- what is refused ---------------------------------------------------------------------


def bad_lists() -> list[tuple[str, BadRequest]]:
    found = []
    for method, make, _ in LISTS:
        for size in (1001, 2**32 - 1):
            bad = BadRequest(f"{method} pages of {size}", make(page_size=size), "OUT_OF_RANGE",
                             "page_size", ("0 to 1000",))  # fmt: skip
            found.append((method, bad))
        long = make(tenant_id="é" * 64 + "x")
        bad = BadRequest(f"{method} long tenant", long, "FIELD_TOO_LONG", "tenant_id", ("128",))
        found.append((method, bad))
    long_model = pb.ListPartitionsRequest(model_id="x" * 2049)
    none = pb.GetEntryRequest()
    return [
        *found,
        ("ListPartitions", BadRequest("long model", long_model, "FIELD_TOO_LONG", "model_id")),
        ("GetEntry", BadRequest("no hash", none, "FIELD_REQUIRED", "content_hash", ("base64",))),
    ]


@pytest.mark.parametrize(("method", "bad"), bad_lists(), ids=str)
async def test_a_bad_request_is_refused(server, method: str, bad: BadRequest):
    """It is told what is wrong, where, and what to do."""
    await fill(server)
    await assert_refused(server, method, bad)


async def test_a_page_of_a_thousand(server):
    """1000 is the most, and is given."""
    for number in range(1100):
        await publish(server, adapter_id=f"{number:04}")
    request = pb.ListPartitionsRequest()
    found = await pages(server, "ListPartitions", request, "partitions", 1000)
    assert [len(page) for page in found] == [1000, 100]
