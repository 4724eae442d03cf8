"""Data-parallel ranks: one publisher each, on ports that count up, and one replica each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from warmindex.errors import InvalidError, Reason, out_of_range

# A rank is a small number; one that is not is no rank. Each names a replica, so that garbage
# would make any number of them.
RANK_MAX: Final = 4095
_PORT: Final = re.compile(r"(?P<host>tcp://.+):(?P<port>[0-9]{1,5})", re.ASCII)
_RANGE: Final = re.compile(r"([0-9]{1,4})-([0-9]{1,4})", re.ASCII)
_PORT_MAX: Final = 65535
# Interfaces to bind; nobody can connect to them.
_WILDCARDS: Final = ("tcp://*:", "tcp://0.0.0.0:", "tcp://[::]:")


class Address(NamedTuple):
    """Where one publisher is. `bind`: it connects here, and not the other way round."""

    live: str
    replay: str | None = None
    bind: bool = False


class Publisher(NamedTuple):
    """One rank's publisher."""

    rank: int
    address: Address


def replica_name(replica_id: str, rank: int, several: bool) -> str:
    """The replica of one rank: "pod", or "pod/dp1" where there are several or it is not the first.

    One engine of several that each have a pod of their own says its rank too, so that a
    rank above 0 is always named.
    """
    return f"{replica_id}/dp{rank}" if several or rank else replica_id


def parse_ranks(text: str) -> list[int]:
    """The ranks meant by "4" (a count: 0 to 3), "2-5" or "0,2,4"."""
    if text.isascii() and text.isdigit():
        ranks = list(range(int(text)))
    elif match := _RANGE.fullmatch(text):
        ranks = list(range(int(match[1]), int(match[2]) + 1))
    else:
        parts = text.split(",")
        if not all(part.isascii() and part.isdigit() for part in parts):
            raise InvalidError(
                f'ranks is {text!r}; give a count ("4"), a range ("2-5") or a list ("0,2,4")',
                field="ranks",
                reason=Reason.OUT_OF_RANGE,
            )
        ranks = sorted({int(part) for part in parts})
    if not ranks or ranks[-1] > RANK_MAX:
        raise out_of_range("ranks", repr(text), f"1 rank or more, each at most {RANK_MAX}")
    return ranks


def publishers(
    ranks: Sequence[int],
    endpoints: Sequence[str],
    replay_endpoints: Sequence[str] = (),
    *,
    bind: bool = False,
) -> list[Publisher]:
    """One publisher per rank.

    One endpoint stands for all ranks, each at its port plus the rank, as engines count;
    else there is one endpoint per rank, in order. The same for `replay_endpoints`, which may
    be empty. Raises InvalidError where they do not fit.
    """
    if not endpoints:
        raise InvalidError(
            "endpoint is required: where the engine publishes, for instance tcp://127.0.0.1:5557",
            field="endpoint",
            reason=Reason.FIELD_REQUIRED,
        )
    live = _per_rank(ranks, endpoints, "endpoint")
    replay = _per_rank(ranks, replay_endpoints, "replay_endpoint") if replay_endpoints else None
    for endpoint in (*(() if bind else live), *(replay or ())):
        if endpoint.startswith(_WILDCARDS):
            raise InvalidError(
                f"endpoint {endpoint} can be bound and not connected to: name the engine's "
                "host, or pass --bind where the engine connects to the sidecar",
                field="endpoint",
                reason=Reason.CONFLICT,
            )
    if both := set(live) & set(replay or ()):
        raise InvalidError(
            f"endpoint and replay_endpoint meet at {min(both)}, as ports count up with the ranks: "
            "set the engine's base ports farther apart",
            field="replay_endpoint",
            reason=Reason.CONFLICT,
        )
    return [
        Publisher(rank, Address(live[i], replay[i] if replay else None, bind))
        for i, rank in enumerate(ranks)
    ]


def _per_rank(ranks: Sequence[int], endpoints: Sequence[str], field: str) -> list[str]:
    if len(endpoints) == len(ranks) > 1:
        return list(endpoints)
    if len(endpoints) != 1:
        raise InvalidError(
            f"{field} is given {len(endpoints)} times for {len(ranks)} ranks: give it once (the "
            "ports count up from it) or once per rank",
            field=field,
            reason=Reason.CONFLICT,
        )
    return [_at_rank(endpoints[0], rank, field) for rank in ranks]


def _at_rank(endpoint: str, rank: int, field: str) -> str:
    if not rank:
        return endpoint
    match = _PORT.fullmatch(endpoint)
    if match is None:
        raise InvalidError(
            f"{field} {endpoint} has no port to count up from for rank {rank}: give one "
            f"{field} per rank",
            field=field,
            reason=Reason.CONFLICT,
        )
    port = int(match["port"]) + rank
    if port > _PORT_MAX:
        raise out_of_range(f"{field} {endpoint} at rank {rank}", port, f"a port up to {_PORT_MAX}")
    return f"{match['host']}:{port}"
