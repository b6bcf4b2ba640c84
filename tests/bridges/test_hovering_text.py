"""Text that hovers on a screen: drawn anew for each episode of training, above all that matters."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from sensorium.bridges.hovering_text import drawn_text

SIZES = st.sampled_from([(120, 160), (240, 320), (480, 640)])


@given(st.integers(0, 2**32 - 1), SIZES)
def test_text_is_seen_and_hides_nothing_in_the_lower_part(seed, size):
    screen = np.full((*size, 3), 7, np.uint8)
    text = drawn_text(np.random.default_rng(seed))
    shown = text.on(screen)
    changed = (shown != screen).any(-1)
    assert (screen == 7).all()
    assert changed.mean() > 0.005
    assert not changed[round(0.35 * size[0]) :].any()
    assert drawn_text(np.random.default_rng(seed)) == text


def test_texts_differ():
    rng = np.random.default_rng(0)
    drawn = [drawn_text(rng) for _ in range(50)]
    assert len({text.text for text in drawn}) > 45
    assert len({text.box for text in drawn}) == 50
    assert len({text.background for text in drawn}) > 45
