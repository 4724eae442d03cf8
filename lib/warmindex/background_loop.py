"""An event loop in a thread of its own, for callers that have none or must not be held.

Connections belong to the loop in which they were made. A caller that comes from any thread, and
from any loop or none, therefore hands its work to this one.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

# What is under way at the end is cancelled, and has this long to notice.
END_S_MAX: Final = 5.0


class BackgroundLoop:
    """Starts with the first work; `close` ends it. Safe to use from several threads.

    The thread is a daemon, so that a program that forgets to close it ends all the same.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work there, and hold the calling thread until it is done."""
        future = asyncio.run_coroutine_threadsafe(work, self._started())
        try:
            return future.result()
        except BaseException:
            # The caller was interrupted: nobody waits for it any more.
            future.cancel()
            raise

    async def run_async(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work there, and await it here; cancelling this cancels it."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._started()))

    def close(self) -> None:
        """End the thread, after what was under way is cancelled. May be called twice."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join(END_S_MAX)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is not None and self._pid != os.getpid():
                # The thread stayed in the parent, and gRPC crashes in such a child.
                raise RuntimeError(
                    f"{self._name} was used before this process was forked: use it first in the "
                    "processes that need it"
                )
            if self._loop is None:
                self._pid = os.getpid()
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_serve, args=(self._loop,), name=self._name, daemon=True
                )
                self._thread.start()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
