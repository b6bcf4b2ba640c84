"""Check the host and origin of requests, and add security headers to responses.

A page of another site could open a WebSocket to this machine, so its `Origin` must be the host of the
request; and the name of a site could be pointed at this machine (DNS rebinding), so the host must be ours.
"""

import ipaddress
import logging
import socket

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOG = logging.getLogger("sensorium.demo")

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class RequestFilter:
    """ASGI middleware: refuses foreign hosts and origins, and adds headers to every response."""

    def __init__(self, app: ASGIApp, host: str, remote: bool):
        """Set up.

        Args:
            app: The application.
            host: The address that is served on.
            remote: Whether requests from other machines are allowed.
        """
        self._app, self._remote = app, remote
        ours = {host, socket.gethostname(), socket.getfqdn()} if remote else set()
        self._names = _LOOPBACK | {name.lower() for name in ours}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, as ASGI calls it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        reason = self._objection(scope)
        if reason:
            LOG.warning("refused %r: %s", scope.get("client"), reason)
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
                return
            await PlainTextResponse(reason, 403)(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await self._app(scope, receive, send_with_headers)

    def _objection(self, scope: Scope) -> str:
        """Return why the request is refused; empty if it is allowed."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._ours(hosts[0]):
            return f"This server is not {', '.join(hosts)[:80]!r}."
        if scope["type"] == "websocket":
            origins = headers.getlist("origin")
            if origins not in ([f"http://{hosts[0]}"], [f"https://{hosts[0]}"]):
                return (
                    f"Frames are for the page of this server, not for {', '.join(origins)[:80]!r}."
                )
        return ""

    def _ours(self, host: str) -> bool:
        name = host.rsplit(":", 1)[0] if host.rpartition(":")[2].isdigit() else host
        name = name.removeprefix("[").removesuffix("]").lower()
        if name in self._names:
            return True
        if not self._remote:
            return False
        try:  # an address cannot be pointed elsewhere
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True
