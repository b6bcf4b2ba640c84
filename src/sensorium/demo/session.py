"""What one visitor has before them: controls, an episode of two agents, frames. Knows nothing of the web."""

from typing import Any

import numpy as np
from jaxtyping import Int8, UInt8

from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.demo import messages
from sensorium.demo.company import Offer
from sensorium.demo.messages import Controls, Message, pack
from sensorium.demo.on_host import HostStage
from sensorium.demo.senses import FROM_NOISE, PATCH, SIGMA, Patches, Wired, Wires
from sensorium.demo.stage import DeviceStage, Stage, Standing
from sensorium.envs import Environment
from sensorium.errors import ConfigError
from sensorium.policies import AttentionAgent, Policy
from sensorium.terminal import significant

_WIDEST = 320  # pixels of the picture that a world draws of itself
_KINDS = {
    "CartPoleSwingUpHarder": "cartpole",
    "gym:AntBulletEnv-v0": "ant",
    "CarRacingRoad": "road",
}
_PAUSE = 1.2  # s of the world's time between the end of an episode and the next


class Session:
    """A visitor's world. `act` on what they say, `advance`, send `frame`."""

    def __init__(self, offer: Offer, controls: Controls, heard: int = 0):
        """Begin an episode.

        Args:
            offer: The agents to choose from.
            controls: As the visitor's link has them.
            heard: Number of the message that has brought them.

        Raises:
            SensoriumError: There is no such agent, or it cannot live with these controls.
        """
        self._offer = offer
        self._company = offer.company(controls.agent)
        self._wires = self._company.wires
        self._wires.check(controls)
        self.controls = controls
        self._dropped: UInt8[np.ndarray, "H W 3"] | None = None
        world = self._company.world
        self._stage: Stage = (
            HostStage(self._company) if isinstance(world, HostWorld) else DeviceStage(self._company)
        )
        self.episode = 0
        """Number of the episode, from 1."""
        self.heard = heard
        """Number of the last message that was done."""
        self._surplus = 0.0
        self._turn, self._age, self._rested = 0, 0, 0
        self._drawn: Any = None
        self._begin()
        self._kind = self._kind_of_picture()

    @property
    def rate(self) -> int:
        """Steps of the world's time in a second."""
        return self._company.world.steps_per_second

    @property
    def picture_shape(self) -> tuple[int, ...] | None:
        """Of backgrounds that can be dropped here; None in a world without pictures."""
        return self._wires.shape if isinstance(self._wires, Patches) else None

    @property
    def takes_copies(self) -> bool:
        """Whether sensors can be there several times without compiling anew for their number."""
        return isinstance(self._wires, Wires) and not self._wires.exact

    def act(self, message: Message) -> "Session":
        """Do what the visitor says.

        Returns:
            The session to go on with: another one if the visitor chose another agent.

        Raises:
            SensoriumError: It cannot be done; all is as before.
        """
        after: Session = self
        match message.do:
            case "set":
                after = self._set(message.value)
            case "shuffle":
                self._set({"wiring": self.controls.wiring % (2**31 - 1) + 1})
            case "reset":
                self._set({"seed": message.value})
                self._begin()  # if it is the same seed too
            case "push":
                self._stage.push(message.value)
            case "step":
                if self.controls.paused:
                    self.advance(1)
        after.heard = max(self.heard, message.number)
        return after

    def drop(self, picture: UInt8[np.ndarray, "H W 3"]) -> None:
        """Put the visitor's own picture where the grass is."""
        self._dropped = picture
        self._set({"background": messages.DROPPED})

    def advance(self, steps: int) -> None:
        """Go on by so many steps; a little after the end of an episode the next one begins."""
        while steps > 0:
            if self._stage.over:
                self._rested += steps
                if self._rested > _PAUSE * self.rate:
                    self._set({"seed": (self.controls.seed + 1) % 2**31})
                return
            every = self.controls.every
            if every and self._age >= every:
                self._turn, self._age = self._turn + 1, 0
                self._redraw()
            count = min(steps, every - self._age) if every else steps
            self._stage.advance(count, self._drawn, self.controls.copies)
            steps, self._age = steps - count, self._age + count

    def advance_by(self, seconds: float) -> None:
        """Go on by so much of the world's time; what is left of a step is kept for the next call."""
        self._surplus += seconds * self.rate
        steps = int(self._surplus + 1e-6)
        self._surplus -= steps
        self.advance(steps)

    def about(self) -> dict[str, Any]:
        """What stays the same until another agent is chosen, for the page to lay itself out."""
        company, world = self._company, self._company.world
        card = company.agent.card
        about: dict[str, Any] = {
            "agent": company.name,
            "agents": sorted(self._offer.sources),
            "summary": company.agent.recipe.summary,
            "rival": company.rival,
            "kind": self._kind,
            "rate": self.rate,
            "steps": world.max_steps,
            "parameters": card.get("parameters"),
        }
        if isinstance(self._wires, Patches):
            about |= self._of_pictures(company.agent.policy, *self._wires.shape[:2])
        elif isinstance(self._wires, Wires):
            assert isinstance(world, Environment | HostWorld)
            about |= {"sensors": list(world.sensor_names), "any_number": self._wires.any_number}
            about["first_noise"] = self._wires.first_noise
        return about

    @staticmethod
    def _of_pictures(policy: Policy, height: int, width: int) -> dict[str, Any]:
        """What the page must know to draw patches: those hidden here, and those that the agent looks at."""
        about = {"shape": [height, width], "patch": PATCH}
        try:
            corners, size = policy.patches(height, width)
        except ConfigError:  # it looks at all of the picture at once
            return {**about, "looks": "everywhere"}
        looks = "at places" if isinstance(policy, AttentionAgent) else "anywhere"
        return {**about, "corners": corners.tolist(), "size": size, "looks": looks}

    def scenery(self) -> list[list[float]]:
        """What stays where it is for an episode: points (m) along a road."""
        return np.round(self._stage.scenery(), 2).tolist()

    def frame(self, number: int = 0) -> bytes:
        """What there is to see now; see `messages.pack`. The number comes back once it is drawn."""
        lead, rival = self._stage.standings()
        header: dict[str, Any] = {
            "frame": number,
            "heard": self.heard,
            "episode": self.episode,
            "seed": self.controls.seed,
            "turn": self._turn,
            "lead": _score(lead),
            "rival": _score(rival) if rival else None,
        }
        arrays = {"body": lead.body}
        if isinstance(self._drawn, Wired):
            arrays |= self._numbers(lead)
        else:
            arrays |= self._picture(lead)
        if rival is not None:
            arrays["rival_body"] = rival.body
        if self._kind == "drawn" and (view := self._stage.view()) is not None:
            arrays["view"] = _shrunk(view)
        if lead.inside is not None:
            arrays["action"] = _small(lead.inside.action)
            if lead.inside.code is not None:
                arrays["code"] = _small(lead.inside.code.reshape(-1))
        return pack(header, arrays)

    def close(self) -> None:
        """Free what it holds."""
        self._stage.close()

    def _kind_of_picture(self) -> str:
        """What the page draws of the world: a body it knows, what is seen, what is drawn, or nothing."""
        name = self._company.agent.recipe.env
        if isinstance(self._wires, Patches):
            return "picture"
        if name in _KINDS:
            return _KINDS[name]
        return "nothing" if self._stage.view() is None else "drawn"

    def _begin(self) -> None:
        self._turn = self._age = self._rested = 0
        self.episode += 1
        self._span: Any = 1e-6
        self._redraw()
        self._stage.begin(self.controls.seed, self._drawn)

    def _set(self, changes: dict[str, Any]) -> "Session":
        controls = messages.change(self.controls, changes)
        if controls.agent != self.controls.agent:
            return Session(self._offer, controls)
        self._wires.check(controls)
        before, self.controls = self.controls, controls
        if controls.wiring != before.wiring or controls.every != before.every:
            self._turn = self._age = 0
        seats = self._wires.seats(self._drawn)
        self._redraw()
        if self._wires.seats(self._drawn) != seats:
            self._stage.rewire(self._drawn)
        if controls.seed != before.seed:
            self._begin()
        return self

    def _redraw(self) -> None:
        self._drawn = self._wires.draw(self.controls, self._turn, self._dropped)

    def _numbers(self, lead: Standing) -> dict[str, np.ndarray]:
        """Who sits where, what they say, who is listened to."""
        assert isinstance(self._wires, Wires)
        count = self._wires.channels(self.controls)
        source = self._drawn.source[:count]
        wire = self._drawn.wire[:count]
        arrays = {"source": source, "wire": wire}
        if lead.inside is None:
            return arrays
        # A bar is of full length where its sensor has read the most so far
        assert lead.observation is not None
        self._span = np.maximum(self._span, np.abs(lead.observation))
        spans = np.where(source == FROM_NOISE, 3 * SIGMA, self._span[np.maximum(source, 0)])
        arrays["level"] = _small(lead.inside.arrived[:count] / spans)
        if lead.inside.attention is not None:
            arrays["attention"] = _small(lead.inside.attention[:, :count].T)
        return arrays

    def _picture(self, lead: Standing) -> dict[str, np.ndarray]:
        """What there is, what of it arrives, what is looked at."""
        assert lead.observation is not None
        picture = np.asarray(lead.observation, np.uint8)
        arrays = {"picture": picture, "hidden": self._drawn.hidden.astype(np.uint8)}
        if lead.inside is None:
            return arrays
        if self._drawn.changes_anything:
            arrays["arrived"] = np.asarray(lead.inside.arrived, np.uint8)
        if lead.inside.attention is not None:
            arrays["looked"] = lead.inside.attention.sum(0).astype(np.float32)
        return arrays


def rehearse(offer: Offer, agent: str) -> None:
    """Compile all that visitors' clicks may need of an agent; SensoriumError if it cannot be shown."""
    session = Session(offer, Controls(agent=agent))
    copies = range(1, messages.MOST_COPIES + 1) if session.takes_copies else (1,)
    for number in reversed(copies):
        session.act(Message("set", 0, {"copies": number}))
        session.advance(1)
    session.act(Message("push", 0, 0.0))
    session.frame()
    session.close()


def _score(standing: Standing) -> dict[str, Any]:
    return {
        "total": significant(standing.total),
        "time": standing.time,
        "ended": standing.ended,
    }


def _shrunk(picture: UInt8[np.ndarray, "height width 3"]) -> UInt8[np.ndarray, "h w 3"]:
    """A picture of at most so many pixels each way."""
    from PIL import Image

    image = Image.fromarray(picture)
    image.thumbnail((_WIDEST, _WIDEST))
    return np.asarray(image)


def _small(values: Any) -> Int8[np.ndarray, "..."]:
    """Numbers from -1 to 1 in a byte each."""
    return np.rint(127 * np.clip(values, -1, 1)).astype(np.int8)
