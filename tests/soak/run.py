"""One run: faults for a while, then rest, then everything is held against the plain model."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from soak import checks, words
from soak.evidence import Evidence, View, digest, lines_of
from soak.faults import Faults
from soak.fleet import PREFIX, Fleet
from soak.plan import Plan
from support.watching import LIVE, Watcher
from warmindex.client import IndexClient
from warmindex.event import Tier

TENANTS = ("", "blue")
FLAG = "flag"
# What no fault is a reason for.
TROUBLE = ("Traceback", "CRITICAL", "RuntimeWarning", "ResourceWarning")
# A lease that ran out while the machine was busy is healed by a report.
HEAL_S_MAX = 40.0


class Summary(NamedTuple):
    """What a run had, to see that it was one."""

    faults: Counter[str]
    acknowledged: int
    answers_checked: int
    copies_checked: int
    revisions_seen: int
    histories: int


class Run:
    """See the module's text."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.folder = folder
        self.fleet = Fleet(plan, folder)
        self.evidence = Evidence(folder / "servers.jsonl")

    async def run(self) -> Summary:
        """All of it. Raises AssertionError where something does not hold."""
        fleet = self.fleet
        async with fleet.running():
            faults = Faults(fleet)
            await faults.run(self.plan.seconds)
            await asyncio.gather(*(each.finish("finish") for each in fleet.producers))
            flags = await self.raise_flags()
            await asyncio.gather(
                *(
                    worker.finish(str(self.last_flag(flags, view)))
                    for worker, view in zip(fleet.followers, self.plan.views, strict=True)
                )
            )
            before = await self.servers_have_the_truth()
            for worker in (*fleet.producers, *fleet.followers):
                await worker.end(signal.SIGKILL)
            if self.plan.journal != "memory":
                await self.restarted_servers_have(before)
            fleet.check_alive()
            for server in fleet.servers:
                assert await server.end(signal.SIGTERM) == 0, server.tail()
            return await self.check(Counter(faults.happened))

    # ---- rest ----------------------------------------------------------------------------

    async def raise_flags(self) -> dict[tuple[str, str], int]:
        """Change something in every partition that is watched; at which revisions."""
        found = {}
        async with IndexClient(self.fleet.addresses[0]) as client:
            for tenant_id in TENANTS:
                for adapter_id in words.ADAPTERS:
                    event = words.embedded(
                        FLAG, tenant_id, [words.KEYS], adapter_id=adapter_id, tier=Tier.DEVICE
                    )
                    result = await client.publish(event)
                    assert result.holds_changed, result
                    found[tenant_id, adapter_id] = result.revision
        for address in self.fleet.addresses:
            async with asyncio.timeout(HEAL_S_MAX), IndexClient(address) as client:
                while (await client.server_info()).revision < max(found.values()):  # noqa: ASYNC110 - in another process
                    await asyncio.sleep(0.05)
        return found

    def last_flag(self, flags: dict[tuple[str, str], int], view: Any) -> int:
        """The revision up to which a view has something to tell."""
        tenant_id, adapter_ids, _ = view
        return max(
            revision
            for (tenant, adapter), revision in flags.items()
            if tenant == tenant_id and (not adapter_ids or adapter in adapter_ids)
        )

    async def server_copies(self, name: str, address: str) -> dict[str, Any]:
        """What a server has in each tenant; its copies are written down."""
        found = {}
        for tenant_id in TENANTS:
            async with Watcher(address, tenant_id=tenant_id) as watcher:
                await watcher.bookmark(LIVE)
                found[tenant_id] = watcher.content()
                self.evidence.note(
                    "copy",
                    view=View(tenant_id),
                    revision=watcher.copy.revision,
                    digest=digest(lines_of(found[tenant_id], View(tenant_id))),
                    of=name,
                )
        return found

    async def servers_have_the_truth(self) -> dict[str, Any]:
        """Every server has what the producers hold, no more and no less; the last one's."""
        expected = checks.truths(checks.evidence_in(self.folder))
        for tenant_id in TENANTS:
            for adapter_id in words.ADAPTERS:
                place = (tenant_id, words.MODEL, words.SCHEME, adapter_id)
                expected[*place, words.key(words.KEYS).hex(), FLAG, int(Tier.DEVICE)] += 1
        copies: dict[str, Any] = {}
        for server, address in zip(self.fleet.servers, self.fleet.addresses, strict=True):
            heal_until = asyncio.get_running_loop().time() + HEAL_S_MAX * bool(self.plan.lease_s)
            while True:
                copies = await self.server_copies(server.name, address)
                found = sum((checks.holds_of(each) for each in copies.values()), Counter())
                if found == expected or asyncio.get_running_loop().time() > heal_until:
                    break
                await asyncio.sleep(0.2)
            assert found == expected, (
                f"{server.name} has not what was said: "
                f"lost {shown(expected - found)}, stale {shown(found - expected)}"
            )
            for content in copies.values():
                for place, entry in content.items():
                    check_payload(place, entry)
        return copies

    async def restarted_servers_have(self, before: dict[str, Any]) -> None:
        """After kill -9 of all servers at once, each has what it had."""
        fleet = self.fleet
        await asyncio.gather(*(server.end(signal.SIGKILL) for server in fleet.servers))
        await asyncio.gather(*(server.start() for server in fleet.servers))
        for server, address in zip(fleet.servers, fleet.addresses, strict=True):
            copies = await self.server_copies(f"{server.name} restarted", address)
            assert copies == before or self.plan.lease_s, f"{server.name} has another state"

    # ---- afterwards ------------------------------------------------------------------------

    async def check(self, faults: Counter[str]) -> Summary:
        """Hold all that was written down against itself, and against the journal."""
        evidence = checks.evidence_in(self.folder)
        for server in self.fleet.servers:
            log = server.log.read_text(encoding="utf-8")
            trouble = [word for word in TROUBLE if word in log]
            assert not trouble, f"{server.name} logged a {trouble[0]}: {server.log}"
        checks.told_once(evidence)
        checks.copies_agree(evidence)
        copies = answers = 0
        if self.plan.journal != "memory":
            stored = await checks.stored(self.fleet.own_url, PREFIX)
            replayed = checks.replay(stored, evidence)
            copies, answers = replayed.copies, replayed.answers
            assert copies, "no copy could be held against the journal"
        return Summary(
            faults=faults,
            acknowledged=len(evidence["ack"]),
            answers_checked=answers,
            copies_checked=copies,
            revisions_seen=len(evidence["seen"]),
            histories=len({line["history"] for line in evidence["ack"]}),
        )


def check_payload(place: Any, entry: Any) -> None:
    """A key has the vector and the text that it always has."""
    _, vector, document, tokens = entry
    if place.key.model_id != words.MODEL:
        return
    number = int.from_bytes(place.content_hash, "big")
    event = words.embedded(FLAG, "", [number])
    assert event.embeddings is not None
    assert vector == event.embeddings[0].tobytes(), f"the vector of {place}"
    assert (document, tokens) == (event.documents[0], words.TOKENS), f"the text of {place}"


def shown(holds: Counter[Any]) -> str:
    """How many, and the first few."""
    return f"{holds.total()}: {sorted(holds)[:3]}"


async def run(plan: Plan, folder: Path) -> Summary:
    """Run a plan in a folder."""
    made = Run(plan, folder)
    try:
        return await made.run()
    except BaseException as error:
        error.add_note(f"to repeat it: make soak ARGS='{arguments(plan)}'; left in {folder}")
        raise
    finally:
        made.evidence.close()


def arguments(plan: Plan) -> str:
    """The options that give a plan again."""
    return f"--seed {plan.seed} --journal {plan.journal} --seconds {plan.seconds:g}"
