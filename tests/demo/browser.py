"""What tests do with the page in a browser.

Screenshots go to the folder that SENSORIUM_SCREENSHOTS names, if it names one.
"""

import os
from pathlib import Path

PATIENCE = 240_000  # ms: agents are compiled meanwhile, perhaps on a busy machine


def until(page, condition):
    """Wait until a condition on the last frame `f` and the state `s` holds, and return its value."""
    return page.wait_for_function(
        f"() => {{ const f = sensorium.frame, s = sensorium.state; return {condition} }}"
    ).json_value()


def keep(page, name, whole=True):
    """Take a picture; for the whole page the window grows and scrolls, and a finger may miss afterwards."""
    folder = os.environ.get("SENSORIUM_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=f"{folder}/{name}.png", full_page=whole)
