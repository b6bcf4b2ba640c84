"""Wires of motors in a real browser, by finger on a phone, by mouse and by keyboard."""

import pytest

from tests.demo.browser import keep, until

AGENT = "#agent=thrusters-motors"
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


class Finger:
    """Touches the wires of a page: places are (share of the width, row)."""

    def __init__(self, page):
        self.page, self.canvas = page, page.locator("#wires")
        self.protocol = page.context.new_cdp_session(page)
        self.canvas.scroll_into_view_if_needed()

    def place(self, across, row):
        box = self.canvas.bounding_box()
        return box["x"] + across * box["width"], box["y"] + 8 + (row + 0.5) * (
            box["height"] - 8
        ) / 8

    def drag(self, *places):
        for number, (x, y) in enumerate([self.place(*place) for place in places]):
            kind = "touchMove" if number else "touchStart"
            self.send(kind, [{"x": x, "y": y}])
        self.send("touchEnd", [])

    def send(self, kind, points):
        self.protocol.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})


class Mouse(Finger):
    """The same with the button of a mouse."""

    def send(self, kind, points):
        for point in points:
            self.page.mouse.move(point["x"], point["y"])
        if kind != "touchMove":
            self.page.mouse.down() if points else self.page.mouse.up()


@pytest.mark.parametrize(("settings", "hand"), [(PHONE, Finger), ({}, Mouse)])
def test_wires_are_dragged_reversed_and_cut_by_hand(browse, settings, hand):
    page = browse(AGENT, **settings)
    until(page, "f.command?.length === 8 && f.digest")
    hand = hand(page)
    scrolled = page.evaluate("() => scrollY")
    hand.drag((0.94, 1), (0.8, 3), (0.9, 5))
    until(page, "String(s.motors) === '0,5,2,3,4,1,6,7'")
    assert "Output 2 is wired to motor 6, output 6 to motor 2." in page.inner_text("#status")
    hand.drag((0.94, 3))  # a tap
    until(page, "String(s.motors_reversed) === '3'")
    until(page, "Math.abs(f.command[3] + f.action[3]) < 2 && f.action[3]")
    hand.drag((0.94, 5), (0.8, 5), (0.5, 4))  # off, into the open: of output 2 now
    until(page, "String(s.motors_cut) === '1' && f.command[5] === 0")
    assert page.evaluate("() => scrollY") == scrolled
    keep(page, f"motors-{type(hand).__name__.lower()}", whole=False)
    hand.drag((0.94, 5), (0.8, 3), (0.92, 1))  # the loose end to a motor
    until(page, "s.motors_cut.length === 0 && s.motors.length === 0")
    hand.drag((0.94, 6), (0.9, 5), (0.94, 6))  # back to where it was
    hand.drag((0.94, 3))
    until(page, "s.motors_reversed.length === 0")
    assert page.evaluate("() => sensorium.state.motors.length") == 0
    assert page.locator("#unwire").is_disabled()
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


def test_wires_by_keyboard_and_by_buttons(browse):
    page = browse(AGENT)
    until(page, "f.command?.length === 8")
    page.get_by_role("button", name="Output 1,").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    until(page, "String(s.motors_reversed) === '1'")
    page.keyboard.press("Shift+ArrowDown")
    until(page, "String(s.motors) === '0,2,1,3,4,5,6,7'")
    label = page.evaluate("() => document.activeElement.ariaLabel")
    assert label == "Output 2, wired to motor 3, reversed"
    page.keyboard.press("Delete")
    until(page, "String(s.motors_cut) === '1'")
    third = page.get_by_role("button", name="motor 3", exact=True)
    assert third.get_attribute("aria-pressed") == "true"
    third.click()
    until(page, "s.motors_cut.length === 0")
    assert "motors=0.2.1.3.4.5.6.7&motors_reversed=1" in page.evaluate("() => location.hash")
    page.click("#rewire")
    until(page, "s.motors.length === 8 && String(s.motors) !== '0,2,1,3,4,5,6,7'")
    page.click("#unwire")
    until(page, "s.motors.length === 0 && s.motors_reversed.length === 0")
    page.keyboard.press("m")
    until(page, "s.motors.length === 8")


def test_wires_stay_where_the_world_does(browse):
    page = browse(AGENT + "&motors=1.0.2.3.4.5.6.7&motors_cut=2&wiring=3")
    until(page, "s.motors.length === 8")
    page.select_option("#agent", "thrusters-motors-unnamed")
    until(page, "s.agent === 'thrusters-motors-unnamed' && f.digest?.shape[1] === 10")
    assert page.evaluate("() => [sensorium.state.motors[0], sensorium.state.wiring]") == [1, 0]
    page.select_option("#agent", "arm-motors")
    until(page, "s.agent === 'arm-motors' && f.pose.length === 34")
    assert page.evaluate("() => sensorium.state.motors.length") == 0
    page.select_option("#agent", "cartpole-pi-reshuffle")
    until(page, "s.agent === 'cartpole-pi-reshuffle' && f.attention")
    assert page.locator("#rewire").is_hidden()
    page.locator("#motors button").click()
    until(page, "String(s.motors_cut) === '0' && f.command[0] === 0 && f.action[0] !== 0")
