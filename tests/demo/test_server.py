"""The server: who is let in, what is served, what is refused, who is sent away."""

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
from websockets.sync.client import connect


def insist(line, *said):
    """Say something again and again, and nothing else, until the line is closed."""
    for each in said * 60:
        line.socket.send(each)
    while True:
        line.socket.recv(60)


@pytest.fixture(scope="module")
def house(serve):
    with serve() as (demo, port):
        yield demo, port


@pytest.fixture
def port(house):
    return house[1]


def get(port, path, **headers):
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(line):
        line.request("GET", path, headers=headers)
        answer = line.getresponse()
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
def test_foreign_names_are_not_served(port, host):
    """A name that was pointed at this machine (DNS rebinding)."""
    assert get(port, "/", Host=f"{host}:{port}")[0].status == 403


def test_our_names_are(port):
    for host in ("localhost", "127.0.0.1", "[::1]"):
        assert get(port, "/", Host=f"{host}:{port}")[0].status == 200


@pytest.mark.parametrize(
    "origin", [None, "http://evil.example", "null", "http://127.0.0.1:1", "file://"]
)
def test_frames_are_for_the_page_alone(port, origin):
    address = f"ws://127.0.0.1:{port}/play"
    with pytest.raises(websockets.exceptions.InvalidStatus, match="403"):  # noqa: SIM117
        with connect(address, origin=origin, proxy=None):
            pass


def test_a_visitor_sees_what_they_do(port, visit):
    with visit(port, noise=3, paused=True) as line:
        first = line.until(lambda said: "frame" in said)
        assert line.news["about"]["agent"] == "cartpole-pi-reshuffle-100"
        assert line.news["state"]["noise"] == 3
        assert len(first["source"]) == 8
        line.say("set", changes={"noise": 1})
        number = line.number
        seen = line.until(lambda said: said.get("heard", 0) >= number and "frame" in said)
        assert len(seen["source"]) == 6
        line.say("step")
        assert line.until(lambda said: "frame" in said)["lead"]["time"] == 1


def test_a_link_that_leads_nowhere_leads_to_the_beginning(port, visit):
    with visit(port, agent="nobody") as line:
        line.until(lambda said: "refused" in said)
        line.until(lambda said: "about" in said)
        assert line.until(lambda said: "frame" in said)["lead"]["time"] >= 0


def test_frames_wait_for_those_that_are_not_drawn_yet(port, visit):
    with visit(port) as line:
        line.until(lambda said: "frame" in said)
        count = 0
        with contextlib.suppress(TimeoutError):
            while True:
                count += isinstance(line.socket.recv(1.5), bytes)
        assert count <= 9
        line.say("seen", frame=1000)  # more than there were
        line.until(lambda said: "frame" in said)


def test_hostile_messages_are_refused_and_logged(port, visit, caplog):
    with visit(port) as line, caplog.at_level(logging.WARNING, "sensorium.demo"):
        line.until(lambda said: "frame" in said)
        for text in (
            '{"do": "set", "changes": {"agent": "../../etc/passwd"}}',
            "\n\x1b[31m",
            "[[[[",
        ):
            line.socket.send(text)
            assert line.until(lambda said: "refused" in said)["refused"]
        line.socket.send(b"no picture")
        assert "no background" in line.until(lambda said: "refused" in said)["refused"]
        line.until(lambda said: "frame" in said)
        with pytest.raises(websockets.exceptions.ConnectionClosed) as closed:
            insist(line, '{"do": "harm"}')
        assert closed.value.rcvd.code == 1008
    assert len(caplog.records) > 20
    assert not any("\x1b" in record.getMessage() for record in caplog.records)


def test_oversized_messages_end_the_line(port, visit, caplog):
    with visit(port) as line, caplog.at_level(logging.WARNING, "sensorium.demo"):
        line.until(lambda said: "frame" in said)
        with pytest.raises(websockets.exceptions.ConnectionClosed) as closed:
            insist(line, b"x" * (5 * 2**20))
        assert closed.value.rcvd is None or closed.value.rcvd.code == 1009
    with visit(port) as line:  # and nobody else is hurt
        line.until(lambda said: "frame" in said)
    assert any("too large" in record.getMessage() for record in caplog.records)


def test_who_is_one_too_many_is_told_so(serve, visit):
    with serve(most_visitors=1) as (_, port), visit(port) as line:
        line.until(lambda said: "frame" in said)
        with pytest.raises(websockets.exceptions.ConnectionClosed) as closed, visit(port) as other:
            other.until(lambda said: "frame" in said)
        assert closed.value.rcvd.code == 1013
        line.until(lambda said: "frame" in said)


def test_who_is_silent_is_sent_away(serve, visit):
    with serve(silence=1.0) as (demo, port), visit(port) as line:
        with pytest.raises(websockets.exceptions.ConnectionClosed) as closed:
            insist(line)
        assert closed.value.rcvd.code == 1001
        while demo.visitors:  # their session is freed
            time.sleep(0.05)


def test_other_machines_need_a_flag(serve):
    from sensorium.demo.doors import Doors
    from sensorium.demo.server import ServerConfig, listen
    from sensorium.errors import ConfigError

    with pytest.raises(ConfigError, match="--allow-remote"):
        listen(ServerConfig(host="0.0.0.0", port=0))
    with (
        contextlib.closing(listen(ServerConfig(host="0.0.0.0", port=0, allow_remote=True))) as door,
        pytest.raises(ConfigError, match="Cannot serve on 127"),
    ):
        listen(ServerConfig(port=door.getsockname()[1]))
    doors = Doors(lambda *_: None, "0.0.0.0", remote=True)
    assert doors._ours("192.168.0.7:8700")
    assert doors._ours("[fe80::1]:8700")
    assert not doors._ours("evil.example:8700")


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
    assert demo.offer.sources[demo.agent] == str(path)
    assert json.dumps(sorted(demo.offer.sources)).count("cartpole-pi") >= 1
