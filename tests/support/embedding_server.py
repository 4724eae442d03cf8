"""A stand-in embedding server: speaks TEI and the OpenAI form over real HTTP, with faults.

    python tests/support/embedding_server.py --port 0 --dimensions 384 --batch-sleep-ms 100

prints "listening on http://127.0.0.1:PORT" when it serves, and runs until SIGTERM. Every
field of `Settings` is a flag (lists and flags as JSON), and can be changed while it runs:

    POST /control  {"model_id": "acme/m2"}      change switches; {} changes nothing
    GET  /stats    {"texts": 140, …}            what it was asked so far
    POST /stats    {}                           the same, then starts counting anew

In a test: `async with serving(Settings(…)) as server` in this process, or
`with running("--batch-sleep-ms", "100") as url` as a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import math
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from aiohttp import web

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from support.embedding_faults import Settings, answer_row, refusal


class EmbeddingServer:
    """One server: its switches, and what it was asked."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.url = ""
        self.reset()
        self._one_at_a_time = asyncio.Lock()
        self.app = web.Application(client_max_size=1 << 30)
        route = self.app.router
        route.add_get("/control", self._control)
        route.add_post("/control", self._control)
        route.add_get("/stats", self._stats)
        route.add_post("/stats", self._stats)
        route.add_get("/health", self._health)
        # Any prefix before the known endings: a gateway may put one there.
        route.add_get("/{prefix:.*}info", self._info)
        route.add_post("/{prefix:.*}embed", self._embed)
        route.add_post("/{prefix:.*}embeddings", self._embeddings)

    def reset(self) -> None:
        """Start counting anew."""
        self.batches: list[int] = []
        self.texts: Counter[str] = Counter()
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.info_count = 0
        self.embed_count = 0
        self.in_flight = 0
        self.in_flight_max = 0

    def stats(self) -> dict[str, Any]:
        """What was asked since the last reset. `texts` counts those that got a vector."""
        return {
            "texts": self.texts.total(),
            "distinct_texts": len(self.texts),
            "batches": self.batches,
            "info_requests": self.info_count,
            "embed_requests": self.embed_count,
            "in_flight_max": self.in_flight_max,
        }

    async def _control(self, request: web.Request) -> web.Response:
        if request.method == "POST":
            self.settings.change(await request.json())
        return web.json_response(vars(self.settings))

    async def _stats(self, request: web.Request) -> web.Response:
        answer = self.stats()
        if request.method == "POST":
            self.reset()
        return web.json_response(answer)

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _info(self, request: web.Request) -> web.StreamResponse:
        self.info_count += 1
        faulty = await self._fault(request)
        if faulty is not None:
            return faulty
        settings = self.settings
        info = {
            "model_id": settings.model_id,
            "model_sha": settings.model_sha or None,
            "model_dtype": settings.model_dtype,
            "served_model_name": settings.served_model_name,
            "model_type": {settings.model_type: {"pooling": settings.pooling}},
            "max_concurrent_requests": settings.max_concurrent_requests,
            "max_input_length": settings.max_input_length,
            "max_batch_tokens": 16384,
            "max_batch_requests": None,
            "max_client_batch_size": settings.max_client_batch_size,
            "auto_truncate": settings.auto_truncate,
            "tokenization_workers": 2,
            "version": "1.9.3",
        }
        for name in settings.fault_info_without:
            del info[name]
        return web.json_response(info)

    async def _embed(self, request: web.Request) -> web.StreamResponse:
        answer = await self._compute(request, "inputs")
        if isinstance(answer, web.StreamResponse):
            return answer
        return web.json_response(answer[1])

    async def _embeddings(self, request: web.Request) -> web.StreamResponse:
        answer = await self._compute(request, "input")
        if isinstance(answer, web.StreamResponse):
            return answer
        body, rows = answer
        settings = self.settings
        data: list[dict[str, Any]] = []
        for index, row in enumerate(rows):
            value: Any = row
            if settings.fault_base64 or body.get("encoding_format") == "base64":
                value = base64.b64encode(np.array(row, dtype="<f4").tobytes()).decode()
            item = {"object": "embedding", "index": index, "embedding": value}
            if settings.fault_no_index:
                del item["index"]
            data.append(item)
        if settings.fault_shuffle:
            random.shuffle(data)
        model = settings.served_model_name
        usage = {"prompt_tokens": len(rows), "total_tokens": len(rows)}
        return web.json_response({"object": "list", "data": data, "model": model, "usage": usage})

    async def _compute(
        self, request: web.Request, key: str
    ) -> web.StreamResponse | tuple[dict[str, Any], list[Any]]:
        """The body and a row for each text; or the answer to give instead."""
        self.embed_count += 1
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        try:
            return await self._computed(request, key)
        finally:
            self.in_flight -= 1

    async def _computed(
        self, request: web.Request, key: str
    ) -> web.StreamResponse | tuple[dict[str, Any], list[Any]]:
        raw = await request.read()
        faulty = await self._fault(request)
        if faulty is not None:
            return faulty
        settings = self.settings
        if len(raw) > settings.payload_limit:
            return web.Response(status=413, text="length limit exceeded")
        body: dict[str, Any] = json.loads(raw)
        self.bodies.append(body)
        given = body[key]
        texts: list[str] = [given] if isinstance(given, str) else given
        refused = refusal(settings, texts, body)
        if refused is not None:
            status, kind, message = refused
            return web.json_response({"error": message, "error_type": kind}, status=status)
        async with self._one_at_a_time if settings.serial else nullcontext():
            await asyncio.sleep(
                (settings.batch_sleep_ms + settings.text_sleep_ms * len(texts)) / 1e3
            )
        if 0 <= settings.fault_swap_after <= len(self.batches):
            settings.model_id, settings.fault_swap_after = settings.fault_swap_to, -1
        rows = [answer_row(settings, text, body) for text in texts]
        self.batches.append(len(texts))
        self.texts.update(texts)
        return body, rows[: len(rows) - settings.fault_short]

    async def _fault(self, request: web.Request) -> web.StreamResponse | None:
        """What is answered whatever was asked: a scripted reply, 401, silence, HTML."""
        settings = self.settings
        self.paths.append(str(request.rel_url))
        for reply in settings.fault_replies:
            if request.path.endswith(reply.get("path", "")):
                reply["times"] = reply.get("times", 1) - 1
                if reply["times"] <= 0:
                    settings.fault_replies.remove(reply)
                text = json.dumps(reply["json"]) if "json" in reply else reply.get("text", "")
                return web.Response(
                    status=reply["status"],
                    text=text,
                    headers=reply.get("headers"),
                    content_type="application/json" if "json" in reply else "text/plain",
                )
        left_s = settings.fault_busy_until - time.time()
        if left_s > 0 and request.method == "POST":
            return web.Response(status=429, headers={"Retry-After": str(math.ceil(left_s))})
        if settings.api_key and settings.api_key not in {
            request.headers.get("Authorization", "").removeprefix("Bearer "),
            request.headers.get("api-key"),
        }:
            return web.Response(status=401)
        if settings.fault_silent_s:
            await asyncio.sleep(settings.fault_silent_s)
        if settings.fault_cut:
            cut = web.StreamResponse(headers={"Content-Length": "1000"})
            await cut.prepare(request)
            await cut.write(b"[[0.1,")
            assert request.transport is not None
            request.transport.abort()
            return cut
        if settings.fault_html:
            return web.Response(text="<html>Welcome</html>", content_type="text/html")
        return None


@asynccontextmanager
async def serving(
    settings: Settings | None = None, port: int = 0
) -> AsyncIterator[EmbeddingServer]:
    """A server in this process, on a port of its own; `server.url` says where."""
    server = EmbeddingServer(settings or Settings())
    runner = web.AppRunner(server.app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield server
    finally:
        await runner.cleanup()


@contextmanager
def running(*flags: str) -> Iterator[str]:
    """A server in a process of its own, with flags as on the command line; gives its URL."""
    command = [sys.executable, __file__, "--port", "0", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("listening on "), f"the stand-in server said {line!r}"
            yield line.split()[-1]
        finally:
            process.terminate()


def _read_flags() -> tuple[int, Settings]:
    parser = argparse.ArgumentParser(description="A stand-in embedding server with faults.")
    parser.add_argument("--port", type=int, default=0)
    defaults = Settings()
    for item in fields(Settings):
        default = getattr(defaults, item.name)
        kind: Any = str if isinstance(default, str) else json.loads
        parser.add_argument("--" + item.name.replace("_", "-"), type=kind, default=default)
    values = vars(parser.parse_args())
    port = values.pop("port")
    return port, Settings(**values)


async def _main() -> None:
    port, settings = _read_flags()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    async with serving(settings, port) as server:
        print(f"listening on {server.url}", flush=True)  # noqa: T201 - a command says where it is
        await stop.wait()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(_main())
