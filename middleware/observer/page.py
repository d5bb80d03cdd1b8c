"""The metrics page of a `serve`: what Prometheus scrapes, on a port of its own in the observer process.

In: `Metrics` and, at each scrape, our own counters.  Out: GET /metrics.  A page that cannot listen is said on the
health page (`trouble`); nothing else depends on it.  It is gone while the observer is dead: that is a scrape
that fails, which Prometheus reports as `up == 0`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from aiohttp import web

from fairtrial.exporters.prometheus import Metrics
from fairtrial.middleware.core.hosts import is_our_host


class MetricsPage:
    """`refresh` is called before each page is made; `trouble` says why nobody can scrape, or is None."""

    def __init__(self, metrics: Metrics, refresh: Callable[[], None], *, hosts: Collection[str] = ()) -> None:
        self._metrics = metrics
        self._refresh = refresh
        self._hosts = hosts
        self._runner: web.AppRunner | None = None
        self.trouble: str | None = None

    async def open(self, host: str, port: int) -> None:
        """Listen.  A port that is taken is no reason not to observe."""
        app = web.Application()
        app.router.add_get("/metrics", self._answer)
        app.router.add_route("*", "/{other:.*}", _elsewhere)
        runner = web.AppRunner(app, access_log=None, handle_signals=False)
        try:
            await runner.setup()
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            await runner.cleanup()
            self.trouble = (
                f"nobody can scrape {host}:{port} ({error.strerror or error}); choose another by serve.metrics"
            )
        else:
            self._runner = runner

    async def _answer(self, request: web.Request) -> web.Response:
        origin = request.headers.get("Origin")
        if not is_our_host(request.headers.get("Host", ""), self._hosts) or origin is not None:
            return web.Response(status=403, text="this Host is not ours; name it in serve.health_hosts\n")
        self._refresh()
        content_type, page = self._metrics.render(request.headers.get("Accept", ""))
        return web.Response(body=page, headers={"Content-Type": content_type, "X-Content-Type-Options": "nosniff"})

    async def close(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()


async def _elsewhere(request: web.Request) -> web.Response:
    """Every other path or method: what there is."""
    known = request.path == "/metrics"
    text = "GET it\n" if known else "there is /metrics\n"
    return web.Response(status=405 if known else 404, text=text, headers={"Allow": "GET, HEAD"} if known else None)
