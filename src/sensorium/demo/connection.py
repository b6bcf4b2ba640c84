"""One user on a WebSocket: messages come in, frames go out in the time of the world.

All work on a session is done in threads, one piece at a time; a piece is one frame, and threads take them in
turns, so that many sessions slow down evenly. The page acknowledges frames once they are drawn, and gets no
more than a few ahead, however slow the network is.
"""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from sensorium.demo.actors import AgentCatalog
from sensorium.demo.messages import Controls, Message, parse
from sensorium.demo.security import LOG
from sensorium.demo.session import Session, begin
from sensorium.demo.upload import decode
from sensorium.errors import ConfigError, MessageError, SensoriumError
from sensorium.serialisation import format_json

_FRAMES = 60  # a second, at most
_AHEAD = 8  # frames that are sent and not acknowledged
_MOST_REFUSALS = 20
_TOO_LARGE = 1009  # what a WebSocket is closed with after too large a message
_MOST_MESSAGES = 300  # a second


class Connection:
    """From the first message to the last."""

    def __init__(
        self,
        socket: WebSocket,
        catalog: AgentCatalog,
        agent: str,
        idle_timeout: float,
        workers: Executor,
        prepare: Callable[[str], Any],
    ):
        """Set up.

        Args:
            socket: Accepted.
            catalog: The agents to choose from.
            agent: The one to begin with, if the page names none.
            idle_timeout: Seconds without a message after which the connection is closed.
            workers: Threads that advance sessions.
            prepare: Compiles an agent; awaited before its first session.
        """
        self._socket, self._catalog, self._agent = socket, catalog, agent
        self._idle_timeout, self._workers, self._prepare = idle_timeout, workers, prepare
        self._session: Session | None = None
        self._starting: asyncio.Task | None = None
        self._lock = asyncio.Lock()
        self._changed, self._acknowledged = asyncio.Event(), asyncio.Event()
        self._sent = self._drawn = self._refusals = self._episode = 0
        self._due = 0.0

    async def run(self) -> None:
        """Serve until either side closes the connection."""
        sending = asyncio.create_task(self._send_frames())
        receiving = asyncio.create_task(self._receive())
        try:
            await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            tasks = [task for task in (sending, receiving, self._starting) if task is not None]
            for task in tasks:
                task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                # A connection that is closed while something is being sent is no failure
                closed = isinstance(result, WebSocketDisconnect | RuntimeError)
                if isinstance(result, Exception) and not closed:
                    LOG.error("a session failed", exc_info=result)
            await self._close()

    async def _close(self) -> None:
        async with self._lock:
            if self._session is not None:
                self._session.close()
                self._session = None
        if self._socket.client_state is WebSocketState.CONNECTED:
            with contextlib.suppress(RuntimeError, WebSocketDisconnect):
                await self._socket.close(1011)

    async def _receive(self) -> None:
        second, count = 0, 0
        while True:
            try:
                received = await asyncio.wait_for(self._socket.receive(), self._idle_timeout)
            except TimeoutError:
                if self._starting is not None and not self._starting.done():
                    continue  # the page waits for the agent
                LOG.info("%r was idle", self._socket.client)
                await self._socket.close(1001, "idle")
                return
            if received["type"] == "websocket.disconnect":
                if received.get("code") == _TOO_LARGE:
                    LOG.warning("refused a message of %r: too large", self._socket.client)
                return
            count = count + 1 if int(time.monotonic()) == second else 1
            second = int(time.monotonic())
            try:
                if count > _MOST_MESSAGES:
                    self._refusals = _MOST_REFUSALS
                    raise MessageError(f"More than {_MOST_MESSAGES} messages a second.")
                await self._handle(received.get("text"), received.get("bytes"))
            except SensoriumError as error:
                await self._refuse(error)
                if self._refusals > _MOST_REFUSALS:
                    await self._socket.close(1008, "too many messages that the page never sends")
                    return

    async def _handle(self, text: str | None, data: bytes | None) -> None:
        if data is not None:
            await self._handle_upload(data)
            return
        message = parse(text or "")
        if message.do == "drawn":
            self._drawn = max(self._drawn, min(message.value, self._sent))
            self._acknowledged.set()
        elif message.do == "set" and (self._session is None or "agent" in message.value):
            if self._starting is not None and not self._starting.done():
                raise ConfigError("An agent is being prepared already; please wait.")
            # Meanwhile messages are read, or the connection would be taken for dead
            self._starting = asyncio.create_task(self._start(message))
        elif message.do != "ping" and self._session is not None:
            async with self._lock:
                await self._work(self._session.handle, message)
            await self._send_state()

    async def _start(self, message: Message) -> None:
        """Begin, or begin anew with another agent."""
        before = self._session
        controls = before.controls if before else Controls(agent=self._agent)
        agent = message.value.get("agent", controls.agent)
        await self._send({"preparing": agent})
        try:
            await self._prepare(agent)
            session = await self._work(
                begin, self._catalog, controls, message.value, message.number
            )
        except SensoriumError as error:
            await self._refuse(error)
            if before is None:  # a link that does not work leads to the default agent
                await self._start(Message("set", message.number, {}))
            return
        async with self._lock:
            self._session, self._episode = session, 0
            if before is not None:
                before.close()
        await self._send({"about": session.about()})
        await self._send_state()

    async def _handle_upload(self, data: bytes) -> None:
        shape = self._session.image_shape if self._session is not None else None
        if self._session is None or shape is None:
            raise MessageError("This world has no background to put an image into.")
        image = await self._work(decode, data, *shape[:2])
        async with self._lock:
            await self._work(self._session.upload, image)
        await self._send_state()

    async def _send_frames(self) -> None:
        """Send frames, at most so many a second, and none while nothing moves."""
        while True:
            session = self._session
            if session is None or session.controls.paused:
                await self._changed.wait()
                if self._session is None:
                    self._changed.clear()
                    continue
                session = self._session
            self._changed.clear()
            while self._sent - self._drawn >= _AHEAD:
                self._acknowledged.clear()
                await self._acknowledged.wait()
            async with self._lock:
                session = self._session or session  # another agent may have been chosen
                frame = await self._work(self._next_frame, session)
            if session.episode != self._episode:
                self._episode = session.episode
                await self._send({"scenery": session.scenery(), **_state(session)})
            await self._socket.send_bytes(frame)
            await self._wait(session)

    async def _wait(self, session: Session) -> None:
        """Wait until the next frame is due; a late one is sent at once, and lost time is not made up."""
        now = time.monotonic()
        self._due = max(self._due + 1 / frames_per_second(session), now - 0.05)
        await asyncio.sleep(max(self._due - now, 0))

    def _next_frame(self, session: Session) -> bytes:
        if not session.controls.paused:
            session.advance_by(session.controls.speed / frames_per_second(session))
        self._sent += 1
        return session.frame(self._sent)

    async def _work(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._workers, function, *arguments)

    async def _refuse(self, error: SensoriumError) -> None:
        self._refusals += isinstance(error, MessageError)
        LOG.warning("refused a message of %r: %s", self._socket.client, str(error)[:200])
        await self._send({"error": str(error)})

    async def _send_state(self) -> None:
        if self._session is not None:
            await self._send(_state(self._session))
        self._changed.set()

    async def _send(self, value: dict[str, Any]) -> None:
        await self._socket.send_text(format_json(value))


def frames_per_second(session: Session) -> int:
    """Return the frames a second: as many as a world has steps, if it has few."""
    return min(_FRAMES, session.rate)


def _state(session: Session) -> dict[str, Any]:
    return {"state": dataclasses.asdict(session.controls), "handled": session.handled}
