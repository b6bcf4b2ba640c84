"""The server: which requests are served, which are refused, and which connections are closed."""

import contextlib
import http.client
import json
import logging
import os
import subprocess
import sys
import time

import pytest

websockets = pytest.importorskip("websockets", reason="the demo's extra is not installed")
from websockets.sync.client import connect as open_socket


def insist(client, *messages):
    """Send messages again and again, and nothing else, until the connection is closed."""
    for each in messages * 60:
        client.socket.send(each)
    while True:
        client.socket.recv(60)


@pytest.fixture(scope="module")
def port(serve):
    with serve() as (_, port):
        yield port


def get(port, path, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer, answer.read()


def test_the_page_and_nothing_else_is_served(port):
    answer, body = get(port, "/")
    assert answer.status == 200
    assert b"<title>Sensorium" in body
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for path in (
        "/server.py", "/../server.py", "/..%2fserver.py", "/page/index.html", "/%2e%2e/session.py",
        "/index.html%00", "//etc/passwd", "/etc/passwd", "/main.js/../../server.py", "/zoo/cartpole-pi.json",
    ):  # fmt: skip
        answer, body = get(port, path)
        assert answer.status == 404, path
        assert b"import" not in body
    for name in ("main.js", "style.css", "icon.svg"):
        assert get(port, f"/{name}")[0].status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "[::1]evil", "", "192.168.0.7"]
)
def test_foreign_hosts_are_refused(port, host):
    """A name that was pointed at this machine (DNS rebinding)."""
    assert get(port, "/", Host=f"{host}:{port}")[0].status == 403


def test_our_hosts_are_served(port):
    for host in ("localhost", "127.0.0.1", "[::1]"):
        assert get(port, "/", Host=f"{host}:{port}")[0].status == 200


@pytest.mark.parametrize(
    "origin", [None, "http://evil.example", "null", "http://127.0.0.1:1", "file://"]
)
def test_frames_are_for_the_page_alone(port, origin):
    address = f"ws://127.0.0.1:{port}/session"
    with pytest.raises(websockets.exceptions.InvalidStatus, match="403"):  # noqa: SIM117
        with open_socket(address, origin=origin, proxy=None):
            pass


def test_frames_show_what_messages_change(port, connect):
    with connect(port, noise=3, paused=True) as client:
        first = client.until(lambda got: "frame" in got)
        assert client.received["about"]["agent"] == "cartpole-pi-reshuffle"
        assert client.received["state"]["noise"] == 3
        assert len(first["source"]) == 8
        client.send("set", changes={"noise": 1})
        number = client.number
        seen = client.until(lambda got: got.get("handled", 0) >= number and "frame" in got)
        assert len(seen["source"]) == 6
        client.send("step")
        assert client.until(lambda got: "frame" in got)["agent"]["time"] == 1


def test_a_link_to_an_unknown_agent_leads_to_the_default(port, connect):
    with connect(port, agent="nobody") as client:
        client.until(lambda got: "error" in got)
        client.until(lambda got: "about" in got)
        assert client.until(lambda got: "frame" in got)["agent"]["time"] >= 0


def test_few_frames_are_sent_ahead_of_their_acknowledgement(port, connect):
    with connect(port) as client:
        client.until(lambda got: "frame" in got)
        count = 0
        with contextlib.suppress(TimeoutError):
            while True:
                count += isinstance(client.socket.recv(1.5), bytes)
        assert count <= 9
        client.send("drawn", frame=1000)  # more than there were
        client.until(lambda got: "frame" in got)


def test_hostile_messages_are_refused_and_logged(port, connect, caplog):
    with connect(port) as client, caplog.at_level(logging.WARNING, "sensorium.demo"):
        client.until(lambda got: "frame" in got)
        for text in (
            '{"do": "set", "changes": {"agent": "../../etc/passwd"}}',
            "\n\x1b[31m",
            "[[[[",
        ):
            client.socket.send(text)
            assert client.until(lambda got: "error" in got)["error"]
        client.socket.send(b"no image")
        assert "no background" in client.until(lambda got: "error" in got)["error"]
        client.until(lambda got: "frame" in got)
        with pytest.raises(websockets.exceptions.ConnectionClosed) as closed:
            insist(client, '{"do": "harm"}')
        assert closed.value.rcvd.code == 1008
    assert len(caplog.records) > 20
    assert not any("\x1b" in record.getMessage() for record in caplog.records)


def test_oversized_messages_close_the_connection(port, connect, caplog):
    with connect(port) as client, caplog.at_level(logging.WARNING, "sensorium.demo"):
        client.until(lambda got: "frame" in got)
        with pytest.raises(websockets.exceptions.ConnectionClosed) as closed:
            insist(client, b"x" * (5 * 2**20))
        assert closed.value.rcvd is None or closed.value.rcvd.code == 1009
    with connect(port) as client:  # and others are served
        client.until(lambda got: "frame" in got)
    assert any("too large" in record.getMessage() for record in caplog.records)


def test_too_many_connections_are_refused(serve, connect):
    with serve(max_connections=1) as (_, port), connect(port) as client:
        client.until(lambda got: "frame" in got)
        with (
            pytest.raises(websockets.exceptions.ConnectionClosed) as closed,
            connect(port) as other,
        ):
            other.until(lambda got: "frame" in got)
        assert closed.value.rcvd.code == 1013
        client.until(lambda got: "frame" in got)


def test_idle_connections_are_closed(serve, connect):
    with serve(idle_timeout=1.0) as (demo, port), connect(port) as client:
        with pytest.raises(websockets.exceptions.ConnectionClosed) as closed:
            insist(client)
        assert closed.value.rcvd.code == 1001
        while demo.connections:  # the session is freed
            time.sleep(0.05)


def test_other_machines_need_a_flag(serve):
    from sensorium.demo.security import RequestFilter
    from sensorium.demo.server import ServerConfig, listen
    from sensorium.errors import ConfigError

    with pytest.raises(ConfigError, match="--allow-remote"):
        listen(ServerConfig(host="0.0.0.0", port=0))
    with (
        contextlib.closing(
            listen(ServerConfig(host="0.0.0.0", port=0, allow_remote=True))
        ) as listener,
        pytest.raises(ConfigError, match="Cannot serve on 127"),
    ):
        listen(ServerConfig(port=listener.getsockname()[1]))
    allowed = RequestFilter(lambda *_: None, "0.0.0.0", remote=True)
    assert allowed._ours("192.168.0.7:8700")
    assert allowed._ours("[fe80::1]:8700")
    assert not allowed._ours("evil.example:8700")


def test_the_command_says_what_is_wrong():
    done = subprocess.run(
        [sys.executable, "-m", "sensorium", "demo", "--host", "0.0.0.0", "--no-open"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    assert "--allow-remote" in done.stderr


@pytest.mark.parametrize("theirs", [False, True])
def test_what_was_compiled_is_kept_for_the_next_start(tmp_path, theirs):
    script = (
        "import jax; from sensorium.demo.server import keep_compiled_code; keep_compiled_code(); "
        "jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0); "
        "jax.jit(lambda x: x + 1)(1.0)"
    )
    cache, other = tmp_path / "cache", tmp_path / "other"
    setting = {"JAX_COMPILATION_CACHE_DIR": str(other)} if theirs else {}
    kept = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    env = {**kept, "XDG_CACHE_HOME": str(cache), **setting}
    subprocess.run([sys.executable, "-c", script], check=True, env=env, timeout=120)
    ours = list(cache.glob("sensorium/compiled-*/*"))
    assert bool(ours) == (not theirs)
    assert other.exists() == theirs


def test_agents_from_a_file_are_offered_by_name(tmp_path):
    from sensorium import zoo
    from sensorium.demo.server import Demo, ServerConfig

    path = tmp_path / "mine.safetensors"
    zoo.load("cartpole-pi").save(path)
    demo = Demo(str(path), ServerConfig())
    assert demo.catalog.sources[demo.agent] == str(path)
    assert json.dumps(sorted(demo.catalog.sources)).count("cartpole-pi") >= 1
