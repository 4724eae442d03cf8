"""From options to an embedder."""

from __future__ import annotations

from warmindex.embedders.base import Embedder
from warmindex.embedders.local_model import LocalEmbedder
from warmindex.embedders.openai import OpenAIEmbedder
from warmindex.embedders.options import AdapterRule, EmbedderOptions
from warmindex.embedders.over_http.urls import split_urls
from warmindex.embedders.tei import TeiEmbedder

__all__ = ["AdapterRule", "EmbedderOptions", "open_embedder", "split_urls"]


def open_embedder(options: EmbedderOptions) -> Embedder:
    """The embedder that the options describe. Nothing is loaded or connected yet.

    Raises MisconfiguredError for options that cannot be.
    """
    if options.kind == "tei":
        return TeiEmbedder(options)
    if options.kind == "openai":
        return OpenAIEmbedder(options)
    return LocalEmbedder(
        options.model,
        max_tokens=options.max_tokens,
        threads=options.threads,
        document_prompt=options.document_prompt,
        query_prompt=options.query_prompt,
    )
