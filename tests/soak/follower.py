"""A watcher and a mirror of the same view, each with a copy of its own.

The watcher holds every response to the contract (`support.watching`) and goes on where it
stood when its server is away, on this server or another, and in its next life after a kill
too if it had no copy to lose: a life begins with a snapshot.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import grpc
from soak.evidence import Evidence, View, digest, lines_of
from soak.worker import Orders, run, say, until_told
from support.questions import content
from support.watching import Watcher
from warmindex.client import IndexClient
from warmindex.mirror import Mirror
from warmindex.v1 import index_service_pb2 as pb

# Between two looks at the whole copy.
COPY_REVISIONS = 40
SILENCE_S_MAX = 8.0
REACH_S_MAX = 60.0


class Follower:
    """One view, followed from server to server."""

    def __init__(self, settings: dict[str, Any], evidence: Evidence) -> None:
        tenant_id, adapter_ids, embeddings = settings["view"]
        self.view = View(tenant_id, tuple(adapter_ids), embeddings)
        self.evidence = evidence
        self.random = random.Random(settings["seed"])
        self.servers: list[str] = settings["servers"]
        self.watcher = Watcher(
            self.servers[0],
            tenant_id=tenant_id,
            adapter_ids=adapter_ids,
            omit_embeddings=not embeddings,
        )
        self.of_revision: list[bytes] = []
        self.next_copy = 0

    async def follow(self, until_revision: int | None = None) -> None:
        """Watch, from where the last watch has ended, on any server."""
        while until_revision is None or not self.has(until_revision):
            try:
                await self.watcher.connect(self.random.choice(self.servers))
                self.of_revision.clear()
                await self.read(until_revision)
            except (grpc.aio.AioRpcError, TimeoutError):
                await asyncio.sleep(0.1 * self.random.random())
            finally:
                await self.watcher.disconnect()

    def has(self, revision: int) -> bool:
        """Whether the copy is whole, and has come that far."""
        return self.watcher.live and self.watcher._whole_revision >= revision

    async def read(self, until_revision: int | None) -> None:
        """Read one watch to its end, or as far as wanted; now and then hang up."""
        while until_revision is None or not self.has(until_revision):
            response = await self.watcher.next(SILENCE_S_MAX)
            if response is None:
                return
            self.note(response)
            if until_revision is None and self.random.random() < 0.002:
                return

    def note(self, response: pb.WatchEventsResponse) -> None:
        """Write down what a revision was, and from time to time the whole copy."""
        del self.watcher.responses[:-1]
        kind = response.WhichOneof("update")
        if self.watcher.live and kind == "event":
            self.of_revision.append(response.event.SerializeToString(deterministic=True))
            if response.cursor:
                what = digest(sorted(self.of_revision))
                self.evidence.note("seen", view=self.view, revision=response.revision, digest=what)
                self.of_revision.clear()
                if response.revision >= self.next_copy:
                    self.note_copy()
        elif kind == "bookmark":
            self.of_revision.clear()
            if response.bookmark.kind == pb.Bookmark.KIND_LIVE:
                self.note_copy()

    def note_copy(self) -> None:
        """Write down the copy."""
        revision = self.watcher._whole_revision
        self.next_copy = revision + self.random.randint(1, COPY_REVISIONS)
        what = digest(lines_of(self.watcher.content(), self.view))
        self.evidence.note("copy", view=self.view, revision=revision, digest=what, of="watcher")


async def main(settings: dict[str, Any], evidence: Evidence, orders: Orders) -> None:
    """Follow until told how far; then tell what the copies have."""
    follower = Follower(settings, evidence)
    view = follower.view
    async with IndexClient(",".join(settings["servers"])) as client:
        # `embeddings` and not `omit_embeddings`: a mirror says what it wants.
        mirror = Mirror(
            client, view.tenant_id, adapter_ids=view.adapter_ids, embeddings=view.embeddings
        )
        async with mirror:
            say("begun")
            revision = int(await until_told(orders, follower.follow()))
            async with asyncio.timeout(REACH_S_MAX):
                await follower.follow(revision)
                await mirror.reached(revision)
            follower.note_copy()
            copy = lines_of(content(mirror._index), view)
            evidence.note(
                "copy", view=view, revision=mirror.revision, digest=digest(copy), of="mirror"
            )
            say("finished")
            await orders.next()


if __name__ == "__main__":
    run(main)
