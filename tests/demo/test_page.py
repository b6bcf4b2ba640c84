"""The page in a real browser: every control changes what it says, and it looks as it should."""

import numpy as np
import pytest

from tests.demo.browser import keep, until


def sources(page):
    return page.evaluate("() => [...sensorium.frame.source]")


def test_shuffle_and_back(browse):
    page = browse()
    assert sources(page) == [0, 1, 2, 3, 4]
    assert page.locator("#order").is_disabled()
    page.click("#shuffle")
    until(page, "s.wiring > 0 && f.handled > 1")
    assert sorted(sources(page)) == [0, 1, 2, 3, 4] != sources(page)
    assert "Shuffled" in page.inner_text("#status")
    page.click("#order")
    until(page, "f.source.every((each, place) => each === place)")


def test_the_return_of_the_agent_grows_after_a_shuffle_and_the_baselines_does_not(browse):
    page = browse("#seed=1&speed=4")
    for time in range(250, 800, 100):  # a feed-forward agent may cope with some orders for a while
        until(page, f"f.agent.time > {time}")
        page.click("#shuffle")
    shown = until(  # on a slow machine in the next episode, which begins shuffled
        page,
        "f.agent.total > 650 && f.baseline.total < 0.75 * f.agent.total"
        " && ['agent', 'baseline'].map(name => document.getElementById(`${name}-score`).innerText)",
    )
    assert int(shown[0]) > int(shown[1])


def test_noise_copies_and_reshuffling(browse):
    page = browse()
    page.locator("#noise").fill("10")
    until(page, "f.source.length === 15")
    assert page.inner_text("#noise-now") == "10"
    assert page.locator("#sensors .noise").count() == 1
    page.select_option("#copies", "3")
    until(page, "f.source.length === 25")
    assert sources(page).count(4) == 3
    page.locator("#every").fill("7")
    page.locator("#every").press("Enter")
    until(page, "s.every === 7 && f.reshuffles >= 2")
    assert "every=7" in page.evaluate("() => location.hash")
    page.locator("#every").fill("100000")
    page.locator("#every").press("Enter")
    until(page, "s.every === 1000")
    assert page.input_value("#every") == "1000"
    page.locator("#every").fill("")
    page.locator("#every").press("Tab")
    until(page, "s.every === 0")
    page.click("#undo")
    until(page, "f.source.length === 5 && f.reshuffles === 0 && s.every === 0")
    assert page.input_value("#noise") == "0"


def test_sensors_are_silenced_by_clicking(browse):
    page = browse()
    sensor = page.get_by_role("button", name="cos angle", exact=True)
    sensor.click()
    until(page, "s.cut.length === 1 && f.level[2] === 0")
    assert sensor.get_attribute("aria-pressed") == "true"
    sensor.press("Enter")
    until(page, "s.cut.length === 0 && f.level[2] !== 0")
    assert sensor.get_attribute("aria-pressed") == "false"


def test_inputs_are_silenced_one_by_one(browse):
    """Noise channels and single copies, by mouse and by keyboard, and two before the answer comes."""
    page = browse("#wiring=3&noise=2&copies=2")
    until(page, "f.channel.length === 12")
    assert page.locator("#inputs button").count() == 12
    channels = page.evaluate("() => [...sensorium.frame.channel]")
    noise, copy = channels.index(16), channels.index(6)
    page.evaluate(
        "(both) => both.forEach((n) => document.querySelectorAll('#inputs button')[n].click())",
        [noise, copy],
    )
    until(page, f"String(s.cut) === '6,16' && f.level[{noise}] === 0 && f.level[{copy}] === 0")
    assert "cut=6.16" in page.evaluate("() => location.hash")
    assert page.get_by_role("button", name="noise 2").get_attribute("aria-pressed") == "true"
    # Of the sensor, and of noise, one channel of two is silent
    for name in ("velocity", "noise"):
        button = page.locator("#sensors").get_by_role("button", name=name, exact=True)
        assert button.get_attribute("aria-pressed") == "mixed"
    page.get_by_role("button", name=f"Input {noise + 1}:").focus()
    page.keyboard.press("Enter")
    until(page, "String(s.cut) === '6'")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    until(page, f"s.cut.includes({channels[1]})")
    keep(page, "inputs")


def test_pause_step_push_speed_and_reset(browse):
    page = browse()
    page.click("#pause")
    until(page, "s.paused")
    page.wait_for_timeout(300)
    time = page.evaluate("() => sensorium.frame.agent.time")
    page.click("#step")
    until(page, f"f.agent.time === {time + 1}")
    assert page.inner_text("#pause") == "Resume"
    pose = page.evaluate("() => sensorium.frame.pose[0]")
    page.click("#push-right")
    for _ in range(3):
        page.click("#step")
    until(page, f"f.agent.time === {time + 4}")
    pushed = page.evaluate("() => sensorium.frame.pose[0]")
    page.locator("#seed").fill("6")
    page.click("#reset")
    until(page, "f.seed === 6 && f.agent.time === 0")
    assert pushed != pose
    page.select_option("#speed", "0.1")
    page.click("#pause")
    until(page, "s.speed === 0.1 && !s.paused && f.agent.time > 0")


def test_keys(browse):
    page = browse()
    page.keyboard.press("s")
    until(page, "s.wiring === 1")
    page.keyboard.press("Space")
    until(page, "s.paused")
    page.keyboard.press("o")
    until(page, "s.wiring === 0")
    before = page.evaluate("() => sensorium.frame.agent.time")
    page.keyboard.press(".")
    until(page, f"f.agent.time > {before}")
    page.keyboard.press("r")
    until(page, "f.agent.time === 0")


def test_presets_are_the_demos_of_the_paper(browse):
    page = browse()
    page.get_by_role("button", name="15 inputs").click()
    until(page, "f.source.length === 15 && s.wiring === 7")
    assert sources(page).count(-1) == 10
    page.get_by_role("button", name="5 sensors").first.click()
    until(page, "f.source.length === 5 && s.wiring === 7")


def test_a_link_holds_the_whole_state(browse):
    fragment = (
        "#agent=cartpole-pi&seed=5&wiring=3&every=50&noise=4&copies=2&cut=1.6&speed=0.5&paused=true"
    )
    page = browse(fragment)
    until(page, "s.paused && f.source.length === 14")
    state = page.evaluate("() => sensorium.state")
    assert state["cut"] == [1, 6]
    assert (state["agent"], state["seed"], state["speed"]) == ("cartpole-pi", 5, 0.5)
    link = page.evaluate("() => location.hash")
    again = browse(link)
    until(again, "s.paused")
    assert again.evaluate("() => sensorium.state") == state
    assert page.input_value("#noise") == "4"
    assert (
        page.get_by_role("button", name="velocity", exact=True).get_attribute("aria-pressed")
        == "true"
    )


def test_another_agent_by_its_name(browse):
    page = browse()
    page.select_option("#agent", "cartpole-fnn")
    until(page, "s.agent === 'cartpole-fnn'")
    assert page.locator("#baseline-figure").is_hidden()
    assert page.locator("#noise").is_hidden()
    assert "in their natural order" in page.inner_text("#no-baseline")


def test_errors_are_shown(browse):
    page = browse("#agent=cartpole-pie")
    page.wait_for_function("() => document.getElementById('agent-name').textContent.length")
    assert page.input_value("#agent") == "cartpole-pi-reshuffle"


def test_the_ant(browse):
    pytest.importorskip(
        "pybullet", reason="the ant needs PyBullet, which has wheels for Python 3.11"
    )
    page = browse("#agent=ant-pi-evolved&wiring=7")
    until(page, "f.agent.time > 60")
    assert page.locator("#sensors button").count() == 28
    assert page.evaluate("() => sensorium.frame.pose.length") == 39
    keep(page, "ant")


def test_everything_can_be_reached_by_keyboard_and_has_a_name(browse):
    page = browse()
    names = page.evaluate("""() => [...document.querySelectorAll("button, select, input")]
        .filter((each) => each.offsetParent)
        .map((each) => each.ariaLabel || each.labels?.[0]?.textContent || each.textContent)""")
    assert len(names) > 20
    assert all(name.strip() for name in names)
    assert page.evaluate("() => document.documentElement.lang") == "en"
    page.keyboard.press("Tab")
    reached = set()
    for _ in range(60):
        reached.add(
            page.evaluate(
                "() => { const a = document.activeElement; return a.id || a.textContent || a.ariaLabel }"
            )
        )
        page.keyboard.press("Tab")
    assert {"agent", "shuffle", "pause", "every", "noise", "seed", "position"} <= reached
    assert len([name for name in reached if name.startswith("Input ")]) == 1  # then by arrow keys


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
def test_it_fits_and_can_be_read(browse, scheme, width, height):
    page = browse(
        "#wiring=7&noise=10&speed=4",
        viewport={"width": width, "height": height},
        color_scheme=scheme,
    )
    until(page, "f.agent.time > 300 && f.source.length === 15")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    for name, least in (("ink", 7), ("soft", 4.5)):
        assert contrast(page, name, "paper") >= least
        assert contrast(page, name, "card") >= least
    assert contrast(page, "accent-ink", "accent") >= 4.5
    keep(page, f"cartpole-{scheme}-{width}")


@pytest.mark.parametrize(("touch", "least"), [(True, 15), (False, 6)])
def test_inputs_are_large_enough_to_be_hit(browse, touch, least):
    size = {"width": 390, "height": 844} if touch else {"width": 1280, "height": 900}
    page = browse("#noise=50&copies=3", viewport=size, has_touch=touch, is_mobile=touch)
    until(page, "f.source.length === 65")
    page.locator("#inputs button").nth(64).wait_for()
    heights = page.evaluate(
        "() => [...document.querySelectorAll('#inputs button')].map((each) => each.offsetHeight)"
    )
    assert len(heights) == 65
    assert min(heights) >= least
    assert page.evaluate("() => document.documentElement.scrollWidth") <= size["width"]


def contrast(page, one, other):
    """As the Web Content Accessibility Guidelines 2 define it."""
    colours = page.evaluate(
        """(names) => names.map((name) => {
            const pen = document.createElement("canvas").getContext("2d");
            pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`);
            pen.fillRect(0, 0, 1, 1);
            return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
        })""",
        [one, other],
    )
    parts = np.array(colours) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    light = np.sort(linear @ [0.2126, 0.7152, 0.0722]) + 0.05
    return light[1] / light[0]
