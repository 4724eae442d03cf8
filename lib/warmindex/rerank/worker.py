"""A thread for a model: loaded at the first call, given one batch at a time.

Batches go to the thread one by one, so that a question asked meanwhile waits for one of
them, and a deadline ends the work between two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from warmindex.embedders.errors import DeadlinePassedError

Model = TypeVar("Model")
Result = TypeVar("Result")


class Worker(Generic[Model]):
    """One model and its thread. `load` runs there, at the first call."""

    def __init__(self, load: Callable[[], Model]) -> None:
        self._load = load
        self._model: Model | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="warmindex-rerank")

    async def run(self, work: Callable[[Model], Result], deadline: float | None) -> Result:
        """What `work` makes of the model. Raises DeadlinePassedError where it is too late to
        begin, and whatever loading the model raises.
        """
        loop = asyncio.get_running_loop()
        if deadline is not None and loop.time() >= deadline:
            raise DeadlinePassedError("the deadline came first", backend="reranker")
        return await loop.run_in_executor(self._thread, lambda: work(self._loaded()))

    def _loaded(self) -> Model:
        if self._model is None:
            self._model = self._load()
        return self._model

    async def close(self) -> None:
        """Let the thread end. A batch that runs is not waited for."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._model = None
