"""One visitor on a WebSocket: listens, and shows frames in the time of the world.

All work on a session is done in threads, one piece at a time; a piece is one frame, and threads take them in
turns, so that many sessions slow down evenly. Frames that have not been drawn yet are counted: nobody gets
more than a few ahead, however slow the line.
"""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from sensorium.demo.company import Offer
from sensorium.demo.doors import LOG
from sensorium.demo.dropped import decode
from sensorium.demo.messages import Controls, Message, change, parse
from sensorium.demo.session import Session
from sensorium.errors import ConfigError, MessageError, SensoriumError
from sensorium.serialisation import format_json

_FRAMES = 60  # a second, at most
_AHEAD = 8  # frames on their way
_MOST_REFUSALS = 20
_TOO_LARGE = 1009  # what a WebSocket is closed with that brought too much at once
_MOST_MESSAGES = 300  # a second


class Visitor:
    """From their first message to their last."""

    def __init__(
        self,
        socket: WebSocket,
        offer: Offer,
        agent: str,
        silence: float,
        stagehands: Executor,
        prepare: Callable[[str], Any],
    ):
        """Set up.

        Args:
            socket: Accepted.
            offer: Agents to choose from.
            agent: Who acts if the visitor names nobody.
            silence: Seconds without a word after which they are taken to have left.
            stagehands: Threads that advance sessions.
            prepare: Makes an agent ready; awaited before it acts for the first time.
        """
        self._socket, self._offer, self._agent = socket, offer, agent
        self._silence, self._stagehands, self._prepare = silence, stagehands, prepare
        self._session: Session | None = None
        self._entering: asyncio.Task | None = None
        self._one_at_a_time = asyncio.Lock()
        self._news, self._drawn = asyncio.Event(), asyncio.Event()
        self._sent = self._seen = self._refusals = self._episode = 0
        self._due = 0.0

    async def stay(self) -> None:
        """Until they leave, or are asked to."""
        showing = asyncio.create_task(self._show())
        listening = asyncio.create_task(self._listen())
        try:
            await asyncio.wait({showing, listening}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            tasks = [task for task in (showing, listening, self._entering) if task is not None]
            for task in tasks:
                task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                # Who leaves while something is being sent to them has only left
                gone = isinstance(result, WebSocketDisconnect | RuntimeError)
                if isinstance(result, Exception) and not gone:
                    LOG.error("a session failed", exc_info=result)
            await self._leave()

    async def _leave(self) -> None:
        async with self._one_at_a_time:
            if self._session is not None:
                self._session.close()
                self._session = None
        if self._socket.client_state is WebSocketState.CONNECTED:
            with contextlib.suppress(RuntimeError, WebSocketDisconnect):
                await self._socket.close(1011)

    async def _listen(self) -> None:
        second, count = 0, 0
        while True:
            try:
                said = await asyncio.wait_for(self._socket.receive(), self._silence)
            except TimeoutError:
                if self._entering is not None and not self._entering.done():
                    continue  # it is they who wait
                LOG.info("%r went silent", self._socket.client)
                await self._socket.close(1001, "silent")
                return
            if said["type"] == "websocket.disconnect":
                if said.get("code") == _TOO_LARGE:
                    LOG.warning("refused a message of %r: too large", self._socket.client)
                return
            count = count + 1 if int(time.monotonic()) == second else 1
            second = int(time.monotonic())
            try:
                if count > _MOST_MESSAGES:
                    self._refusals = _MOST_REFUSALS
                    raise MessageError(f"More than {_MOST_MESSAGES} messages a second.")
                await self._hear(said.get("text"), said.get("bytes"))
            except SensoriumError as error:
                await self._refuse(error)
                if self._refusals > _MOST_REFUSALS:
                    await self._socket.close(1008, "too many messages that the page never sends")
                    return

    async def _hear(self, text: str | None, data: bytes | None) -> None:
        if data is not None:
            await self._receive_picture(data)
            return
        message = parse(text or "")
        if message.do == "seen":
            self._seen = max(self._seen, min(message.value, self._sent))
            self._drawn.set()
        elif message.do == "set" and (self._session is None or "agent" in message.value):
            if self._entering is not None and not self._entering.done():
                raise ConfigError("An agent is being prepared already; please wait.")
            # Meanwhile messages are read, or the line would be taken for dead
            self._entering = asyncio.create_task(self._enter(message))
        elif message.do != "here" and self._session is not None:
            async with self._one_at_a_time:
                await self._work(self._session.act, message)
            await self._tell_state()

    async def _enter(self, message: Message) -> None:
        """Begin, or begin anew with another agent."""
        before = self._session
        controls = before.controls if before else Controls(agent=self._agent)
        controls = change(controls, message.value)
        await self._tell({"preparing": controls.agent})
        try:
            await self._prepare(controls.agent)
            fresh = await self._work(Session, self._offer, controls, message.number)
        except SensoriumError as error:
            await self._refuse(error)
            if before is None:  # a link that leads nowhere leads to the beginning
                await self._enter(Message("set", message.number, {}))
            return
        async with self._one_at_a_time:
            self._session, self._episode = fresh, 0
            if before is not None:
                before.close()
        await self._tell({"about": fresh.about()})
        await self._tell_state()

    async def _receive_picture(self, data: bytes) -> None:
        shape = self._session.picture_shape if self._session is not None else None
        if self._session is None or shape is None:
            raise MessageError("There is no background here to put a picture into.")
        picture = await self._work(decode, data, *shape[:2])
        async with self._one_at_a_time:
            await self._work(self._session.drop, picture)
        await self._tell_state()

    async def _show(self) -> None:
        """Frames, at most so many a second, and none while nothing moves."""
        while True:
            session = self._session
            if session is None or session.controls.paused:
                await self._news.wait()
                if self._session is None:
                    self._news.clear()
                    continue
                session = self._session
            self._news.clear()
            while self._sent - self._seen >= _AHEAD:
                self._drawn.clear()
                await self._drawn.wait()
            async with self._one_at_a_time:
                session = self._session or session  # another agent may have entered
                frame = await self._work(self._next, session)
            if session.episode != self._episode:
                self._episode = session.episode
                await self._tell({"scenery": session.scenery(), **_state(session)})
            await self._socket.send_bytes(frame)
            await self._wait(session)

    async def _wait(self, session: Session) -> None:
        """Until the next frame is due; who is late goes on at once and does not catch up."""
        now = time.monotonic()
        self._due = max(self._due + 1 / frames_a_second(session), now - 0.05)
        if self._due > now:
            await asyncio.sleep(self._due - now)
        else:
            await asyncio.sleep(0)

    def _next(self, session: Session) -> bytes:
        if not session.controls.paused:
            session.advance_by(session.controls.speed / frames_a_second(session))
        self._sent += 1
        return session.frame(self._sent)

    async def _work(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(
            self._stagehands, function, *arguments
        )

    async def _refuse(self, error: SensoriumError) -> None:
        self._refusals += isinstance(error, MessageError)
        LOG.warning("refused a message of %r: %s", self._socket.client, str(error)[:200])
        await self._tell({"refused": str(error)})

    async def _tell_state(self) -> None:
        if self._session is not None:
            await self._tell(_state(self._session))
        self._news.set()

    async def _tell(self, news: dict[str, Any]) -> None:
        await self._socket.send_text(format_json(news))


def frames_a_second(session: Session) -> int:
    """As many as a world has steps, if it has few."""
    return min(_FRAMES, session.rate)


def _state(session: Session) -> dict[str, Any]:
    return {"state": dataclasses.asdict(session.controls), "heard": session.heard}
