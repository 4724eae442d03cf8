"""The HTTP port: /healthz says that the process lives, /readyz that it serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from warmindex_server.access.tls import Tls

if TYPE_CHECKING:
    from collections.abc import Callable


class HttpPort:
    """A small HTTP server beside the gRPC one."""

    def __init__(self, readiness: Callable[[], tuple[bool, str]], tls: Tls | None = None) -> None:
        self._readiness = readiness
        self._tls = tls
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; the port listened on. Raises OSError where it is taken."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(
            self._runner,
            host,
            port,
            reuse_port=False,
            ssl_context=self._tls.http_context() if self._tls else None,
        )
        await site.start()
        return int(self._runner.addresses[0][1])

    async def close(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return web.json_response({"status": "alive"})

    async def _readyz(self, request: web.Request) -> web.Response:  # noqa: ARG002
        ready, text = self._readiness()
        return web.json_response({"ready": ready, "state": text}, status=200 if ready else 503)
