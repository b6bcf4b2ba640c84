"""Serve the page over HTTP and frames over a WebSocket, to this machine alone by default."""

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
from sensorium.demo.actors import AgentCatalog
from sensorium.demo.connection import Connection
from sensorium.demo.security import LOG, RequestFilter
from sensorium.demo.session import compile_agent
from sensorium.demo.upload import LARGEST_FILE
from sensorium.errors import ConfigError
from sensorium.rollout import usable_cores

AGENT = "cartpole-pi-reshuffle"
"""The default agent."""
_WORTH_KEEPING = 0.2  # s of compilation
_LAST_PORT = 65_535
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
    max_connections: int = 64
    """At once; further ones are refused."""
    idle_timeout: float = 90.0
    """Seconds without a message after which a connection is closed."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= _LAST_PORT:
            raise ConfigError(f"A port is a number from 0 to {_LAST_PORT:,}, got {self.port}.")


def serve(agent: str | None, config: ServerConfig, *, open_page: bool = True) -> None:
    """Serve the page until interrupted.

    Args:
        agent: The agent to begin with: a name of the zoo, a run directory, or a file. On the page users can
            choose any agent of the zoo, but no files.
        config: How the page is served.
        open_page: Open it in a browser.

    Raises:
        ConfigError: The address or port cannot be had.
        SensoriumError: The agent cannot be loaded or shown.
    """
    keep_compiled_code()
    listener = listen(config)
    host, port = listener.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    console = Console(stderr=True, highlight=False)
    with console.status(f"Preparing {agent or AGENT}"):
        demo = Demo(agent, config)
        compile_agent(demo.catalog, demo.agent)
    console.print(f"Serving {demo.agent} at {address} (Ctrl-C to stop).")
    if open_page:
        webbrowser.open(address)
    uvicorn.Server(uvicorn_config(demo)).run(sockets=[listener])


def keep_compiled_code() -> None:
    """Keep compiled code in the user's cache folder for later starts.

    If `JAX_COMPILATION_CACHE_DIR` is set, it stays as it is.
    """
    if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        # A home may be shared by machines of different processors, whose code differs
        folder = Path(caches) / "sensorium" / f"compiled-{platform.node()}"
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", _WORTH_KEEPING)


def listen(config: ServerConfig) -> socket.socket:
    """Open a socket; ConfigError if that fails, or if other machines could reach it and must not."""
    if not config.allow_remote and not _is_loopback(config.host):
        raise ConfigError(
            f"{config.host} can be reached from other machines: add --allow-remote to allow it."
        )
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        return socket.create_server((config.host, config.port), family=family)
    except OSError as error:
        raise ConfigError(f"Cannot serve on {config.host}, port {config.port}: {error}.") from error


def uvicorn_config(demo: "Demo") -> uvicorn.Config:
    """Configure how the application is run: nothing is compressed, and messages have a limit."""
    return uvicorn.Config(
        demo.app,
        log_level="warning",
        ws="websockets-sansio",
        ws_max_size=LARGEST_FILE,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=1,
    )


class Demo:
    """The application and its connections."""

    def __init__(self, agent: str | None, config: ServerConfig):
        """Set up; nothing is served yet. UnknownNameError if there is no such agent."""
        sources = {name: name for name in zoo.names()}
        self.agent = AGENT if agent is None else agent
        if self.agent not in sources:
            self.agent = zoo.load(self.agent).name
            sources[self.agent] = str(agent)
        self.catalog = AgentCatalog(sources)
        self.connections = 0
        self._config = config
        self._page = {
            path.name: (path.read_bytes(), _KINDS[path.suffix])
            for path in (Path(__file__).parent / "page").iterdir()
            if path.suffix in _KINDS
        }
        self._workers = ThreadPoolExecutor(max(2, usable_cores()), "session")
        self._compiler = ThreadPoolExecutor(1, "compiler")
        self._compiled: dict[str, asyncio.Task] = {}
        routes = [
            Route("/", self._show_page),
            Route("/{name}", self._show_page),
            WebSocketRoute("/session", self._serve_session),
        ]
        self.app = RequestFilter(Starlette(routes=routes), config.host, config.allow_remote)

    async def _show_page(self, request: Request) -> Response:
        """Serve files of `page/`, which were read at the start, and nothing else."""
        name = request.path_params.get("name", "index.html")
        if name not in self._page:
            return PlainTextResponse("Not found.", 404)
        body, kind = self._page[name]
        return Response(body, media_type=kind)

    async def _serve_session(self, websocket: WebSocket) -> None:
        await websocket.accept()
        if self.connections >= self._config.max_connections:
            LOG.warning("refused %r: too many connections", websocket.client)
            await websocket.send_json({"error": "Too many users at once; please try again later."})
            await websocket.close(1013)
            return
        self.connections += 1
        try:
            await Connection(
                websocket,
                self.catalog,
                self.agent,
                self._config.idle_timeout,
                self._workers,
                self._prepare,
            ).run()
        finally:
            self.connections -= 1

    async def _prepare(self, name: str) -> None:
        """Compile an agent, once, in a thread of its own, so that other sessions go on."""
        if name not in self._compiled or (
            self._compiled[name].done() and self._compiled[name].exception() is not None
        ):
            self._compiled[name] = asyncio.create_task(self._compile(name))
        await asyncio.shield(self._compiled[name])  # other connections wait for it too

    async def _compile(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._compiler, compile_agent, self.catalog, name)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
