"""One watch on one server, in the domain's words.

    async for step in client.watch(Selection(model_id="m"), cursor):
        match step.kind: …

It ends when the server ends it (after CLOSING) and raises a WarmindexError when it breaks;
whoever goes on does so with the last cursor that was not empty, here or on another server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from enum import IntEnum
from typing import Final, NamedTuple

import grpc

from warmindex import wire
from warmindex.channels import Channels, error_of
from warmindex.errors import InvalidError, UnavailableError
from warmindex.event import CacheEvent
from warmindex.index.selection import Selection
from warmindex.v1 import index_service_pb2 as pb


class StepKind(IntEnum):
    """What a step of a watch is; the bookmarks' numbers are the contract's."""

    # Something that this version does not know: whoever meets it no longer trusts its copy.
    UNKNOWN = -1
    CHANGE = 0
    RESET = 1
    LIVE = 2
    IDLE = 3
    CLOSING = 4


class WatchStep(NamedTuple):
    """One step: a change, or a part of the snapshot, has an `event`; bookmarks have none."""

    kind: StepKind
    revision: int
    cursor: str
    event: CacheEvent | None = None


_BOOKMARKS: Final = {int(kind): kind for kind in StepKind if kind > StepKind.CHANGE}


async def watch(
    channels: Channels, selection: Selection, cursor: str
) -> AsyncGenerator[WatchStep, None]:
    """The steps of one watch on the server that is asked first; another one is, once it ends."""
    address = channels.address
    call = channels.stub(address).WatchEvents(_request(selection, cursor))
    try:
        async for response in call:
            yield _step(response)
    except grpc.aio.AioRpcError as error:
        translated = error_of(error, address)
        if isinstance(translated, UnavailableError):
            channels.move_on(address)
        raise translated from None
    except asyncio.CancelledError:
        # A channel that is closed under a call says it was cancelled, which its task was not.
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise UnavailableError(f"the connection to {address} was closed here") from None
    finally:
        call.cancel()
    channels.move_on(address)


def _request(selection: Selection, cursor: str) -> pb.WatchEventsRequest:
    return pb.WatchEventsRequest(
        tenant_id=selection.tenant_id,
        model_id=selection.model_id,
        adapter_ids=sorted(selection.adapter_ids),
        omit_embeddings=not selection.embeddings,
        omit_documents=not selection.documents,
        cursor=cursor,
    )


def _step(response: pb.WatchEventsResponse) -> WatchStep:
    update = response.WhichOneof("update")
    kind, event = StepKind.UNKNOWN, None
    if update == "event":
        try:
            event = wire.change_from_wire(response.event)
            kind = StepKind.CHANGE
        except InvalidError:
            # A type or a tier that came later, or limits that have grown.
            kind = StepKind.UNKNOWN
    elif update == "bookmark":
        kind = _BOOKMARKS.get(response.bookmark.kind, StepKind.UNKNOWN)
    return WatchStep(kind, response.revision, response.cursor, event)
