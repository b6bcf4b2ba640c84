"""A server that is really there, on a port of its own."""

import contextlib
import json
import shutil
import threading
import time

import pytest

from tests.demo.browser import PATIENCE

AGENTS = ("cartpole-pi-reshuffle", "cartpole-fnn", "cartpole-nla", "cartpole-pi")


@pytest.fixture(scope="session")
def catalog():
    """Agents to choose from; each is loaded once."""
    from sensorium import zoo
    from sensorium.demo.actors import AgentCatalog

    return AgentCatalog({name: name for name in zoo.names()})


@pytest.fixture
def start(catalog):
    """Begin sessions, and close them at the end."""
    from sensorium.demo.messages import Controls
    from sensorium.demo.session import Session

    sessions = []

    def begin(agent=AGENTS[0], **controls):
        sessions.append(Session(catalog, Controls(agent=agent, **controls)))
        return sessions[-1]

    yield begin
    for session in sessions:
        session.close()


@pytest.fixture(scope="session")
def serve():
    """Serve the demo in a thread: `with serve(idle_timeout=1.0) as (demo, port)`; on any port."""
    pytest.importorskip("starlette", reason="the demo's extra is not installed")
    uvicorn = pytest.importorskip("uvicorn", reason="the demo's extra is not installed")
    from sensorium.demo import server

    @contextlib.contextmanager
    def start(agent=AGENTS[0], **settings):
        config = server.ServerConfig(**{"port": 0, **settings})
        listener = server.listen(config)
        demo = server.Demo(agent, config)
        running = uvicorn.Server(server.uvicorn_config(demo))
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not running.started:
            time.sleep(0.01)
        try:
            yield demo, listener.getsockname()[1]
        finally:
            running.should_exit = True
            thread.join(20)
            assert not thread.is_alive()

    return start


class Client:
    """A user without a browser."""

    def __init__(self, port, **changes):
        from websockets.sync.client import connect as open_socket

        origin = f"http://127.0.0.1:{port}"
        self._open = contextlib.ExitStack()
        self.socket = self._open.enter_context(
            open_socket(f"ws://127.0.0.1:{port}/session", origin=origin, proxy=None)
        )
        self.number = 0
        self.received = {}
        self.send("set", changes=changes)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._open.close()

    def send(self, do, **more):
        self.number += 1
        self.socket.send(json.dumps({"do": do, "id": self.number, **more}))

    def receive(self, timeout=120):
        """The next message, or the next frame, which is acknowledged."""
        from sensorium.demo.messages import unpack

        received = self.socket.recv(timeout)
        if isinstance(received, str):
            self.received |= json.loads(received)
            return json.loads(received)
        header, arrays = unpack(received)
        self.send("drawn", frame=header["frame"])
        return header | arrays

    def until(self, condition):
        """The first message or frame that meets a condition."""
        while True:
            received = self.receive()
            if condition(received):
                return received


@pytest.fixture
def connect():
    """Connect to a server: `with connect(port, noise=3) as client`."""
    return Client


@pytest.fixture(scope="module")
def address(serve):
    """Of a server that the tests of a module share."""
    with serve() as (_, port):
        yield f"http://127.0.0.1:{port}/"


@pytest.fixture(scope="module")
def chromium():
    """A browser."""
    binary = shutil.which("chromium") or shutil.which("google-chrome")
    if binary is None:
        pytest.skip("there is no Chromium to open the page with")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=binary, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def browse(chromium, address):
    """Open the page; whatever the console complains of fails the test."""
    contexts, complaints = [], []

    def begin(fragment="", **settings):
        settings = {"viewport": {"width": 1280, "height": 900}, **settings}
        contexts.append(chromium.new_context(**settings))
        page = contexts[-1].new_page()
        page.set_default_timeout(PATIENCE)
        page.on(
            "console",
            lambda said: said.type in ("error", "warning") and complaints.append(said.text),
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda request: (
                request.url.startswith(("http", "ws"))
                and (request.url.startswith(address) or complaints.append(f"fetched {request.url}"))
            ),
        )
        page.goto(address + fragment)
        page.wait_for_function("() => sensorium.drawn > 0")
        return page

    yield begin
    for context in contexts:
        context.close()
    assert not complaints
