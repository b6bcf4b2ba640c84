"""The page over HTTP, and frames over a WebSocket, on this machine alone unless one asks otherwise."""

import asyncio
import dataclasses
import ipaddress
import os
import platform
import socket
import webbrowser
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import uvicorn
from rich.console import Console
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from sensorium import zoo
from sensorium.demo.company import Offer
from sensorium.demo.doors import LOG, Doors
from sensorium.demo.dropped import LARGEST_FILE
from sensorium.demo.session import rehearse
from sensorium.demo.visitor import Visitor
from sensorium.errors import ConfigError

AGENT = "cartpole-pi-reshuffle-100"
"""Who acts if nobody is named."""
_WORTH_KEEPING = 0.2  # seconds that it took to compile
_KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


@dataclasses.dataclass(frozen=True)
class ServerConfig:
    """How the page is served."""

    host: str = "127.0.0.1"
    """The address to serve on."""
    port: int = 8700
    """0 for any that is free."""
    allow_remote: bool = False
    """Whether `host` may be an address that other machines reach."""
    most_visitors: int = 64
    """At once; who comes then is told so."""
    silence: float = 90.0
    """Seconds without a word after which a visitor is taken to have left."""


def serve(agent: str | None, config: ServerConfig, *, open_page: bool = True) -> None:
    """Serve the page until interrupted.

    Args:
        agent: Who acts first: a name of the zoo, a run directory, or a file; visitors may change to any of
            the zoo, but name no files.
        config: How the page is served.
        open_page: Open it in a browser.

    Raises:
        ConfigError: The address or port cannot be had.
        SensoriumError: The agent cannot be loaded or shown.
    """
    keep_compiled_code()
    door = listen(config)
    host, port = door.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    console = Console(stderr=True, highlight=False)
    with console.status(f"Preparing {agent or AGENT}"):
        demo = Demo(agent, config)
        rehearse(demo.offer, demo.agent)
    console.print(f"Shuffle the senses of {demo.agent} at {address} (Ctrl-C ends it).")
    if open_page:
        webbrowser.open(address)
    uvicorn.Server(uvicorn_config(demo)).run(sockets=[door])


def keep_compiled_code() -> None:
    """Let later starts load what this one compiles, from the user's cache folder.

    Whoever keeps JAX's compiled code elsewhere already (`JAX_COMPILATION_CACHE_DIR`) goes on doing so.
    """
    if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        # A home may be shared by machines of different processors, whose code differs
        folder = Path(caches) / "sensorium" / f"compiled-{platform.node()}"
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", _WORTH_KEEPING)


def listen(config: ServerConfig) -> socket.socket:
    """A socket on the address; ConfigError if it cannot be had, or is not this machine's alone."""
    if not config.allow_remote and not _is_loopback(config.host):
        raise ConfigError(
            f"{config.host} can be reached from other machines: say --allow-remote if that is meant."
        )
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        return socket.create_server((config.host, config.port), family=family)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"Cannot serve on {config.host}, port {config.port}: {error}.") from error


def uvicorn_config(demo: "Demo") -> uvicorn.Config:
    """How the application is run: nothing is compressed, and messages have a limit."""
    return uvicorn.Config(
        demo.app,
        log_level="warning",
        ws="websockets-sansio",
        ws_max_size=LARGEST_FILE,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=1,
    )


class Demo:
    """The application, and everybody who is there."""

    def __init__(self, agent: str | None, config: ServerConfig):
        """Set up; nothing is served yet. UnknownNameError if there is no such agent."""
        sources = {name: name for name in zoo.names()}
        self.agent = AGENT if agent is None else agent
        if self.agent not in sources:
            self.agent = zoo.load(self.agent).name
            sources[self.agent] = str(agent)
        self.offer = Offer(sources)
        self.visitors = 0
        self._config = config
        self._page = {
            path.name: (path.read_bytes(), _KINDS[path.suffix])
            for path in (Path(__file__).parent / "page").iterdir()
            if path.suffix in _KINDS
        }
        self._stagehands = ThreadPoolExecutor(max(2, os.cpu_count() or 2), "stage")
        self._rehearsal = ThreadPoolExecutor(1, "rehearsal")
        self._ready: dict[str, asyncio.Task] = {}
        routes = [
            Route("/", self._show_page),
            Route("/{name}", self._show_page),
            WebSocketRoute("/play", self._play),
        ]
        self.app = Doors(Starlette(routes=routes), config.host, config.allow_remote)

    async def _show_page(self, request: Request) -> Response:
        """Files of `page/`, which were read at the start: nothing else can be asked for."""
        name = request.path_params.get("name", "index.html")
        if name not in self._page:
            return PlainTextResponse("There is nothing here.", 404)
        body, kind = self._page[name]
        return Response(body, media_type=kind)

    async def _play(self, websocket: WebSocket) -> None:
        await websocket.accept()
        if self.visitors >= self._config.most_visitors:
            LOG.warning("refused %r: all places are taken", websocket.client)
            await websocket.send_json({"refused": "All places are taken; please come back later."})
            await websocket.close(1013)
            return
        self.visitors += 1
        try:
            await Visitor(
                websocket,
                self.offer,
                self.agent,
                self._config.silence,
                self._stagehands,
                self._prepare,
            ).stay()
        finally:
            self.visitors -= 1

    async def _prepare(self, name: str) -> None:
        """Compile an agent, once, in a thread of its own: nobody else has to wait for it."""
        if name not in self._ready or (
            self._ready[name].done() and self._ready[name].exception() is not None
        ):
            self._ready[name] = asyncio.create_task(self._rehearse(name))
        await asyncio.shield(self._ready[name])  # others wait for it too

    async def _rehearse(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._rehearsal, rehearse, self.offer, name)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
