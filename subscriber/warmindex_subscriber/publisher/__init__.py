"""The publisher: events of many replicas to the index, at least once and in order.

outbox      events that have no answer yet, numbered, replica by replica: pure
leases      whose lease is set on the present stream: pure
line        one stream after the other, to whichever server can be reached
publisher   what sources call, and what the index's answers mean
"""

from __future__ import annotations

from warmindex_subscriber.publisher.line import PublisherOptions
from warmindex_subscriber.publisher.publisher import Publisher

__all__ = ["Publisher", "PublisherOptions"]
