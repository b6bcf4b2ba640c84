"""Frame rate and latency of the demo, in a browser and for fifty clients at once.

    python benchmarks/demo.py          # frames drawn need Chromium and playwright; they are left out without

The server is a process of its own; clients are WebSockets in this one, which acknowledge every frame. Latency
is from a message to the first frame that shows its effect. Server, clients and browser share the cores.
"""

import asyncio
import contextlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table
from websockets.asyncio.client import connect

from sensorium.demo.messages import unpack

_PORT = 8797


class Client:
    """Acknowledges every frame at once, and changes the controls now and then."""

    def __init__(self, agent: str, seconds: float, every: float):
        self.agent, self.seconds, self.every = agent, seconds, every
        self.number, self.frames, self.latencies, self.lost = 0, 0, [], False
        self.sensors = False

    async def run(self, begin: asyncio.Barrier) -> None:
        """Run until the time is over; counting starts when all are connected."""
        origin = f"http://127.0.0.1:{_PORT}"
        address = f"ws://127.0.0.1:{_PORT}/session"
        try:
            async with connect(address, origin=origin, proxy=None) as self.socket:
                await self.send("set", changes={"agent": self.agent})
                while isinstance(received := await self.socket.recv(), str):
                    about = json.loads(received).get("about", {})
                    self.sensors = self.sensors or "sensors" in about
                drawing = asyncio.create_task(self.draw())
                await begin.wait()
                self.frames = 0
                await asyncio.wait_for(asyncio.gather(drawing, self.click()), self.seconds)
        except TimeoutError:
            pass
        except (OSError, RuntimeError) as error:
            Console(stderr=True).print(f"lost: {error!r}")
            self.lost = True

    async def draw(self) -> None:
        async for received in self.socket:
            if isinstance(received, str):
                continue
            header, _ = unpack(received)
            self.frames += 1
            if self.waiting and header["handled"] >= self.waiting[0]:
                self.latencies.append(time.perf_counter() - self.waiting[1])
                self.waiting = None
            if header["frame"] % 3 == 0:
                await self.send("drawn", frame=header["frame"])
        self.lost = True

    waiting: tuple[int, float] | None = None

    async def click(self) -> None:
        chance = np.random.default_rng(id(self))
        noise = 0
        while True:
            await asyncio.sleep(self.every * chance.uniform(0.5, 1.5))
            if self.waiting is None:
                noise = (noise + 7) % 50
                self.waiting = (self.number + 1, time.perf_counter())
                # Where there are images instead of sensors, patches are hidden
                more = {"noise" if self.sensors else "occlude": noise}
                await self.send("set", changes={**more, "wiring": int(chance.integers(1000))})

    async def send(self, do: str, **more: object) -> None:
        self.number += 1
        await self.socket.send(json.dumps({"do": do, "id": self.number, **more}))


@contextlib.contextmanager
def _server() -> Iterator[None]:
    command = [sys.executable, "-m", "sensorium", "demo", "--no-open", "--port", str(_PORT)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "Ctrl-C" in line or f":{_PORT}" in line:
                break
        else:
            raise SystemExit("The server did not start.")
        try:
            yield
        finally:
            process.terminate()


async def _together(count: int, agent: str, seconds: float, every: float = 1.0) -> list[Client]:
    begin = asyncio.Barrier(count)
    clients = [Client(agent, seconds, every) for _ in range(count)]
    await asyncio.gather(*(client.run(begin) for client in clients))
    return clients


def _of_clients(count: int, agent: str, seconds: float) -> dict:
    clients = asyncio.run(_together(count, agent, seconds))
    rates = [client.frames / seconds for client in clients]
    waits = [1000 * wait for client in clients for wait in client.latencies]
    return {
        "clients": count,
        "agent": agent,
        "frames_per_second": [min(rates), statistics.median(rates), max(rates)],
        "latency_ms": [statistics.median(waits), float(np.quantile(waits, 0.95)), max(waits)],
        "clicks": len(waits),
        "lost": sum(client.lost for client in clients),
    }


def _in_browser(agent: str, seconds: float) -> dict | None:
    """Frames that are drawn, and milliseconds from a click to the frame that shows it, in Chromium."""
    chromium = shutil.which("chromium")
    if chromium is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(300_000)
        page.goto(f"http://127.0.0.1:{_PORT}/#agent={agent}")
        page.wait_for_function("() => sensorium.drawn > 30")
        before = page.evaluate("() => [sensorium.drawn, performance.now()]")
        page.wait_for_timeout(1000 * seconds)
        after = page.evaluate("() => [sensorium.drawn, performance.now()]")
        waits = page.evaluate(
            """async () => {
                const waits = [];
                for (let i = 0; i < 15; i++) {
                    const begun = performance.now();
                    const old = sensorium.state.wiring;
                    document.getElementById("shuffle").click();
                    while (sensorium.state.wiring === old) await new Promise(requestAnimationFrame);
                    const drawn = sensorium.drawn;
                    while (sensorium.drawn === drawn) await new Promise(requestAnimationFrame);
                    waits.push(performance.now() - begun);
                    await new Promise((done) => setTimeout(done, 150));
                }
                return waits;
            }"""
        )
        browser.close()
    return {
        "agent": agent,
        "frames_per_second": 1000 * (after[0] - before[0]) / (after[1] - before[1]),
        "latency_ms": [statistics.median(waits), max(waits)],
    }


def main(clients: int = 50, seconds: float = 10.0, json_file: Path | None = None) -> None:
    """Measure.

    Args:
        clients: How many connect at once in the last part.
        seconds: Of each part.
        json_file: Write what was measured to this file.
    """
    pole, driver, ant = "cartpole-pi-reshuffle", "carracing-attention-agent", "ant-pi-evolved"
    load = os.getloadavg()[0]
    with _server():
        browser = [_in_browser(agent, seconds) for agent in (pole, driver, ant)]
        few = [_of_clients(4, agent, seconds) for agent in (pole, driver, ant)]
        many = _of_clients(clients, pole, seconds)
    result = {
        "machine": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "load_before": load,
        "browser": [each for each in browser if each],
        "clients": [*few, many],
    }
    table = Table(title="The demo")
    for column in (
        "client",
        "agent",
        "frames/s (least, median, most)",
        "click to frame, ms",
        "lost",
    ):
        table.add_column(column)
    for each in result["browser"]:
        middle, most = each["latency_ms"]
        speed = f"{each['frames_per_second']:.0f}"
        table.add_row("Chromium", each["agent"], speed, f"{middle:.0f}, at most {most:.0f}", "")
    for each in result["clients"]:
        middle, high, most = each["latency_ms"]
        speeds = ", ".join(f"{speed:.0f}" for speed in each["frames_per_second"])
        waits = f"{middle:.0f}, 95% {high:.0f}, at most {most:.0f}"
        table.add_row(f"{each['clients']} at once", each["agent"], speeds, waits, str(each["lost"]))
    Console().print(table)
    if json_file is not None:
        json_file.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    tyro.cli(main)
