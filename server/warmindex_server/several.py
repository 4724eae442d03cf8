"""From a journal to what its servers share beside it; nothing where the server is alone."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from warmindex_server.claims.redis import RedisClaims
    from warmindex_server.journal.base import Journal
    from warmindex_server.replicas import Heard
    from warmindex_server.shared import Peers
    from warmindex_server.store import Store

_log = logging.getLogger(__name__)


class Shared(NamedTuple):
    """Claims for all servers of a journal, and what they know of each other."""

    claims: RedisClaims
    peers: Peers


def share(journal: Journal, store: Store, heard: Heard) -> Shared | None:
    """What servers share where their journal is; None where nothing is."""
    if not journal.shared:
        return None
    # The client library is an extra; where the journal is in Redis it is there.
    from warmindex_server.claims.redis import RedisClaims  # noqa: PLC0415 - see above
    from warmindex_server.journal.redis import RedisJournal  # noqa: PLC0415 - see above
    from warmindex_server.shared import Peers  # noqa: PLC0415 - see above

    if not isinstance(journal, RedisJournal):
        _log.warning(
            "servers on a %s journal share neither claims nor renewals of leases", journal.name
        )
        return None
    link, keys = journal.link, journal.keys
    return Shared(
        RedisClaims(link, keys, lambda: store.problem),
        Peers(link, keys, heard, lambda: store.index.leases),
    )
