"""The publisher: events of many replicas to the index, at least once and in order."""

from __future__ import annotations

from warmindex_subscriber.publisher.publisher import Publisher, PublisherOptions

__all__ = ["Publisher", "PublisherOptions"]
