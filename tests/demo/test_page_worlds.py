"""The page in a real browser: clipboard, files, a lost connection, and worlds beside cart-pole."""

import dataclasses

import jax
import numpy as np
import pytest
from PIL import Image

from sensorium import recipes
from sensorium.policies import VisionAttentionNeuronConfig
from sensorium.zoo import Agent
from tests.demo.browser import PATIENCE, keep, until


def test_a_link_can_be_copied(browse):
    page = browse("#wiring=5&noise=3")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    until(page, "s.noise === 3")
    page.click("#share")
    page.wait_for_function("() => document.getElementById('status').textContent === 'Link copied.'")
    link = page.evaluate("() => navigator.clipboard.readText()")
    assert link == page.url
    assert "noise=3" in link
    # Where a browser has no clipboard for the page, as over plain HTTP from another machine
    page.evaluate("() => Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.click("#share")
    page.wait_for_function(
        "() => document.getElementById('status').textContent.startsWith('Copy the address')"
    )


def test_a_lost_connection_is_restored_with_all_controls(chromium, address):
    """The WebSocket breaks, the server goes on: the page comes back with all that was set."""
    with chromium.new_context() as context:
        page, sockets = context.new_page(), []
        page.set_default_timeout(PATIENCE)
        page.route_web_socket(
            "**/session", lambda socket: sockets.append((socket, socket.connect_to_server()))
        )
        page.goto(address + "#wiring=4&noise=6&seed=9")
        page.wait_for_function("() => sensorium.drawn > 0")
        sockets[0][0].close(code=1011)
        sockets[0][1].close(code=1001)
        page.wait_for_function(
            "() => document.getElementById('status').classList.contains('wrong')"
        )
        assert "connection is lost" in page.inner_text("#status")
        until(page, "f.agent.time > 0 && f.channel.length === 11")
        page.wait_for_function(
            "() => !document.getElementById('status').classList.contains('wrong')"
        )
        assert len(sockets) == 2
        state = page.evaluate("() => sensorium.state")
        assert (state["wiring"], state["noise"]) == (4, 6)
        assert state["seed"] >= 9  # episodes may have ended meanwhile
        page.click("#shuffle")
        until(page, "s.wiring === 5")


def test_a_server_that_comes_back_is_found_again(serve, chromium):
    with chromium.new_context() as context:
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        with serve() as (_, port):
            page.goto(f"http://127.0.0.1:{port}/#wiring=4&noise=6&paused=true&seed=9")
            page.wait_for_function("() => sensorium.drawn > 0 && sensorium.state.paused")
        page.wait_for_function(
            "() => document.getElementById('status').classList.contains('wrong')"
        )
        before = page.evaluate("() => sensorium.state")
        page.evaluate("() => { sensorium.state = null }")
        with serve(port=port):
            page.wait_for_function("() => sensorium.state !== null")
            assert page.evaluate("() => sensorium.state") == before
            page.click("#step")
            until(page, "f.agent.time === 1")
            assert "lost" not in page.inner_text("#status")


def test_car_racing(browse, tmp_path):
    page = browse("#agent=carracing-attention-agent")
    until(page, "f.image && f.importance")
    assert page.inner_text("#baseline-name") == "carracing-cnn"
    assert page.locator("#no-baseline").is_hidden()
    until(page, "f.baseline.time > 20 && f.baseline_pose.length === 4")
    box = page.locator("#scene").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.1)
    until(page, "s.hidden.length === 1 && f.hidden[s.hidden[0]] === 1")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    until(page, "s.hidden.length === 2")
    assert len(set(np.array(page.evaluate("() => sensorium.state.hidden")) % 16)) == 1
    page.locator("#occlude").fill("40")
    until(page, "f.hidden.filter(Boolean).length > 90")
    page.select_option("#background", "waves")
    until(page, "s.background === 'waves'")
    page.select_option("#modify", "colour3")
    until(page, "s.modify === 'colour3'")
    assert "modify=colour3" in page.evaluate("() => location.hash")
    keep(page, "racing")
    Image.new("RGB", (300, 200), (10, 20, 250)).save(tmp_path / "blue.png")
    page.set_input_files("#file", tmp_path / "blue.png")
    until(page, "s.background === 'upload'")
    until(page, "f.arrived.filter((v, i) => i % 3 === 2 && v === 250).length > 1000")
    assert "upload" not in page.evaluate("() => location.hash")
    page.select_option("#background", "hills")
    until(page, "s.background === 'hills'")
    Image.new("RGB", (300, 200), (250, 20, 10)).save(tmp_path / "red.png")
    drop(page, "notes.txt", "text/plain", b"no image")
    assert "no image" in page.inner_text("#status")
    drop(page, "red.png", "image/png", (tmp_path / "red.png").read_bytes())
    assert "red.png is the background" in page.inner_text("#status")
    until(page, "s.background === 'upload'")
    until(page, "f.arrived.filter((v, i) => i % 3 === 0 && v === 250).length > 1000")
    page.click("#shuffle")
    until(page, "s.wiring === 1")


def drop(page, name, kind, data):
    """A file, as a hand lets it go over the page."""
    seen = page.evaluate(
        """([name, kind, bytes]) => {
            const held = new DataTransfer();
            held.items.add(new File([Uint8Array.from(bytes)], name, { type: kind }));
            const let_go = (what) => document.getElementById("scene").dispatchEvent(
                new DragEvent(what, { dataTransfer: held, bubbles: true, cancelable: true }));
            const taken = !let_go("dragover"), marked = document.body.classList.contains("dropping");
            let_go("drop");
            return [taken, marked, document.body.classList.contains("dropping")];
        }""",
        [name, kind, list(data)],
    )
    assert seen == [True, True, False]


def test_take_cover_looks_as_a_visitor_likes(serve, chromium, tmp_path):
    pytest.importorskip("vizdoom", reason="the extra `doom` is not installed")
    small = VisionAttentionNeuronConfig(num_queries=16, top=4, hidden_rows=0)
    env = "gym:sensorium/TakeCover-v0?width=160&discrete=true"
    recipe = recipes.find("takecover-attention-agent-recurrent")
    recipe = dataclasses.replace(recipe, env=env, policy=small)
    path = tmp_path / "covers.safetensors"
    Agent(recipe.draw_policy(jax.random.key(0)), recipe, {}).save(path)
    sign = "f.image.filter((v, i) => i % 3 === 2 && v > 250 && f.image[i - 1] < 5).length > 50"
    with serve(str(path)) as (_, port), chromium.new_context() as context:
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(f"http://127.0.0.1:{port}/")
        page.wait_for_function("() => sensorium.drawn > 5")
        page.set_viewport_size({"width": 360, "height": 780})  # a phone; the agent has a long name
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 360
        assert page.locator("#text").is_hidden()
        page.select_option("#variant", "text")
        until(page, sign)
        page.locator("#text").fill("HELLO")
        page.locator("#text").press("Tab")
        until(page, "s.text === 'HELLO'")
        assert "variant=text&text=HELLO" in page.evaluate("() => location.hash")
        until(page, "f.agent.time > 5")
        keep(page, "take-cover")
        page.reload()
        page.wait_for_function("() => sensorium.state?.text === 'HELLO'")
        assert page.locator("#text").input_value() == "HELLO"
        page.click("#undo")
        until(page, f"s.variant === '' && !({sign})")


def test_worlds_that_draw_themselves_and_that_do_not(serve, chromium, tmp_path):
    for name, drawing in (("Walk", "rendered"), ("Mute", "none")):
        env = f"gym:tests.host_worlds:{name}-v0"
        recipe = dataclasses.replace(recipes.find("cartpole-pi"), env=env)
        path = tmp_path / f"{name}.safetensors"
        Agent(recipe.draw_policy(jax.random.key(0)), recipe, {}).save(path)
        with serve(str(path)) as (_, port), chromium.new_context() as context:
            page = context.new_page()
            page.set_default_timeout(PATIENCE)
            page.goto(f"http://127.0.0.1:{port}/")
            page.wait_for_function("() => sensorium.drawn > 5")
            assert page.evaluate("() => document.body.dataset.drawing") == drawing
            assert page.locator("#scene").is_visible() == (drawing == "rendered")
            assert page.locator("#no-view").is_visible() == (drawing == "none")
            assert page.locator("#push").is_hidden()
            page.get_by_role("button", name="sensor 1", exact=True).click()
            until(page, "s.cut.length === 1 && f.level?.[1] === 0")
            if drawing == "rendered":
                size = page.evaluate("() => [scene.width, scene.height]")
                assert size == [8, 8]
            keep(page, f"world-{drawing}")
