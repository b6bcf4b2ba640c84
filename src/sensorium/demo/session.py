"""The controls, episode and frames of one user; independent of the network."""

import math
from typing import Any

import numpy as np
from jaxtyping import Int8, UInt8

from sensorium.demo import messages
from sensorium.demo.actors import AgentCatalog
from sensorium.demo.episode import DeviceEpisode, Episode, Snapshot
from sensorium.demo.host_episode import HostEpisode
from sensorium.demo.messages import Controls, Message, pack
from sensorium.demo.rewiring import (
    FROM_NOISE,
    PATCH,
    SIGMA,
    ImageRewiring,
    RewiredImage,
    RewiredSensors,
    SensorRewiring,
)
from sensorium.errors import ConfigError, did_you_mean
from sensorium.policies import Policy
from sensorium.rollout import by_kind
from sensorium.terminal import significant
from sensorium.types import digest_levels, in_colour, levels, num_sensors_of

_LARGEST_VIEW = 320  # pixels each way of the image that a world draws of itself
_PAUSE = 1.2  # s of the world's time between the end of an episode and the next


class Session:
    """Handle messages with `handle`, go on with `advance`, send `frame`."""

    def __init__(self, catalog: AgentCatalog, controls: Controls, handled: int = 0):
        """Begin an episode.

        Args:
            catalog: The agents to choose from.
            controls: As the user's link has them.
            handled: Number of the message that brought them.

        Raises:
            SensoriumError: There is no such agent, or the controls do not fit it.
        """
        self._catalog = catalog
        self._actors = catalog.actors(controls.agent)
        self._rewiring = self._actors.rewiring
        self._world = self._actors.world
        self._check(controls)
        self.controls = controls
        self._upload: UInt8[np.ndarray, "H W 3"] | None = None
        self._episode = self._open(controls)
        self.episode = 0
        """Number of the episode, from 1."""
        self.handled = handled
        """Number of the last message that was handled."""
        self._surplus = 0.0
        self._reshuffles, self._age, self._steps_since_end = 0, 0, 0
        self._rewired: Any = None
        self._begin()
        self._drawing = self._choose_drawing()

    @property
    def rate(self) -> int:
        """Steps in a second of the world's time."""
        return self._world.steps_per_second

    @property
    def image_shape(self) -> tuple[int, ...] | None:
        """Of backgrounds that can be uploaded; None in a world of scalar sensors."""
        return self._rewiring.shape if isinstance(self._rewiring, ImageRewiring) else None

    @property
    def fixed_size(self) -> bool:
        """Whether copies of sensors need no compilation for their number."""
        return isinstance(self._rewiring, SensorRewiring) and self._rewiring.fixed_size

    def handle(self, message: Message) -> "Session":
        """Do what a message asks for.

        Returns:
            The session to go on with: a new one if another agent was chosen.

        Raises:
            SensoriumError: It cannot be done; nothing has changed.
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
            case "act":
                self._episode.play(message.value)
            case "push":
                self._episode.push(message.value)
            case "step":
                if self.controls.paused:
                    self.advance(1)
        after.handled = max(self.handled, message.number)
        return after

    def upload(self, image: UInt8[np.ndarray, "H W 3"]) -> None:
        """Use the user's own image as background."""
        self._upload = image
        self._set({"background": messages.UPLOAD})

    def advance(self, steps: int) -> None:
        """Take some steps; a little after the end of an episode the next one begins."""
        while steps > 0:
            if self._episode.over:
                self._steps_since_end += steps
                if self._steps_since_end > _PAUSE * self.rate:
                    self._set({"seed": (self.controls.seed + 1) % 2**31})
                return
            every = self.controls.every
            if every and self._age >= every:
                self._reshuffles, self._age = self._reshuffles + 1, 0
                self._rewire()
            count = min(steps, every - self._age) if every else steps
            self._episode.advance(count, self._rewired, self.controls.copies)
            steps, self._age = steps - count, self._age + count

    def advance_by(self, seconds: float) -> None:
        """Go on by some of the world's time; the rest of a step is kept for the next call."""
        self._surplus += seconds * self.rate
        steps = int(self._surplus + 1e-6)
        self._surplus -= steps
        self.advance(steps)

    def about(self) -> dict[str, Any]:
        """Describe the agent and its world, for the layout of the page."""
        actors, world = self._actors, self._world
        solved = world.solved_return
        about: dict[str, Any] = {
            "agent": actors.name,
            "agents": sorted(self._catalog.sources),
            "summary": actors.agent.recipe.summary,
            "parameters": actors.agent.card.get("parameters"),
            "baseline": actors.baseline_name,
            "drawing": self._drawing,
            "rate": self.rate,
            "steps": world.max_steps,
            "solved": solved if math.isfinite(solved) else None,
            "failure": world.failure,
            "can_be_pushed": world.can_be_pushed,
            "variants": list(world.variants),
            "actions": list(self._episode.actions),
            "motors": _few(world.motor_names),
            "fixed_outputs": actors.agent.policy.fixed_outputs,
        }
        if isinstance(self._rewiring, ImageRewiring):
            about |= self._about_images(actors.agent.policy, *self._rewiring.shape[:2])
            about["in_colour"] = self._rewiring.in_colour
        elif isinstance(self._rewiring, SensorRewiring):
            about |= {
                "sensors": list(world.sensor_names),
                "any_number": self._rewiring.any_number,
                "first_noise": self._rewiring.first_noise,
            }
        return about

    @staticmethod
    def _about_images(policy: Policy, height: int, width: int) -> dict[str, Any]:
        """List sizes of the patches that are hidden here, and of those that the agent attends to."""
        about = {"shape": [height, width], "patch": PATCH}
        try:
            corners, size = policy.patches(height, width)
        except ConfigError:  # it has no patches
            return {**about, "attends": "to all pixels"}
        attends = "to places" if policy.fixed_inputs else "to contents"
        return {**about, "corners": corners.tolist(), "size": size, "attends": attends}

    def scenery(self) -> list[list[float]]:
        """Return what stays in its place during an episode: points (m) along a road."""
        return np.round(self._episode.scenery(), 2).tolist()

    def frame(self, number: int = 0) -> bytes:
        """Pack what is to be drawn now, as `messages.pack`; the page sends `number` back once it has."""
        agent, baseline = self._episode.snapshots()
        header: dict[str, Any] = {
            "frame": number,
            "handled": self.handled,
            "episode": self.episode,
            "seed": self.controls.seed,
            "reshuffles": self._reshuffles,
            "agent": _score(agent),
            "baseline": _score(baseline) if baseline else None,
        }
        arrays = {"pose": agent.pose}
        if isinstance(self._rewired, RewiredSensors):
            arrays |= self._sensor_arrays(agent, self._rewired)
        else:
            arrays |= self._image_arrays(agent, self._rewired)
        if baseline is not None:
            arrays["baseline_pose"] = baseline.pose
        if self._drawing == "rendered" and (view := self._episode.render()) is not None:
            arrays["view"] = _shrunk(view)
        if agent.trace is not None:
            arrays["action"] = _as_bytes(agent.trace.action)
            arrays["command"] = _as_bytes(agent.trace.command)
            if agent.trace.digest is not None:
                arrays["digest"] = _as_bytes(
                    digest_levels(agent.trace.digest, len(agent.trace.arrived)).T
                )
            if agent.trace.code is not None:
                arrays["code"] = _as_bytes(agent.trace.code.reshape(-1))
        return pack(header, arrays)

    def close(self) -> None:
        """Free what it holds."""
        self._episode.close()

    def _check(self, controls: Controls) -> None:
        """Raise ConfigError if the policy or the world does not fit the controls."""
        self._rewiring.check(controls)
        offered = self._world.variants
        if controls.variant and not offered:
            raise ConfigError("This world has no variants.")
        if controls.variant not in ("", *offered):
            raise did_you_mean("variant of this world", controls.variant, offered)

    def _open(self, controls: Controls) -> Episode:
        """Open the world as the controls have it look."""
        return by_kind(
            self._world,
            lambda _: DeviceEpisode(self._actors),
            lambda host: HostEpisode(self._actors, host, controls.look),
        )

    def _choose_drawing(self) -> str:
        """Choose how the page draws the world: its images, its pose, what the world renders, or nothing."""
        if isinstance(self._rewiring, ImageRewiring):
            return "image"
        if self._world.drawing:
            return self._world.drawing
        return "none" if self._episode.render() is None else "rendered"

    def _begin(self) -> None:
        self._reshuffles = self._age = self._steps_since_end = 0
        self.episode += 1
        self._largest: Any = 1e-6
        self._rewire()
        self._episode.reset(self.controls.seed, self._rewired)

    def _set(self, changes: dict[str, Any]) -> "Session":
        controls = messages.change(self.controls, changes)
        if controls.agent != self.controls.agent:
            return begin(self._catalog, self.controls, changes)
        self._check(controls)
        before = self.controls
        episode = self._open(controls) if controls.look != before.look else self._episode
        self.controls = controls
        if controls.wiring != before.wiring or controls.every != before.every:
            self._reshuffles = self._age = 0
        inputs = num_sensors_of(self._rewiring.inputs(self._rewired))
        self._rewire()
        after = num_sensors_of(self._rewiring.inputs(self._rewired))
        if inputs is not None and after is not None and inputs != after:
            self._episode.resize(self._rewired, inputs, after)
        if controls.look != before.look:
            self._episode.close()
            self._episode = episode
        if controls.look != before.look or controls.seed != before.seed:
            self._begin()
        return self

    def _rewire(self) -> None:
        self._rewired = self._rewiring.rewire(self.controls, self._reshuffles, self._upload)

    def _sensor_arrays(self, agent: Snapshot, rewired: RewiredSensors) -> dict[str, np.ndarray]:
        """List for each used input its channel and sensor, its reading, and the attention to it."""
        assert isinstance(self._rewiring, SensorRewiring)
        source, used = self._rewiring.source(rewired), int(rewired.used)
        arrays = {"source": source, "channel": np.asarray(rewired.channel[:used])}
        if agent.trace is None:
            return arrays
        # A bar has full length where its sensor has read the most so far
        assert agent.observation is not None
        spec = self._world.raw_observation_spec
        read, arrived = levels(agent.observation, spec), levels(agent.trace.arrived[:used], spec)
        self._largest = np.maximum(self._largest, np.abs(read))
        lengths = np.where(source == FROM_NOISE, 3 * SIGMA, self._largest[np.maximum(source, 0)])
        arrays["level"] = _as_bytes(arrived / lengths)
        if agent.trace.attention is not None:
            arrays["attention"] = _as_bytes(agent.trace.attention[:, :used].T)
        return arrays

    def _image_arrays(self, agent: Snapshot, rewired: RewiredImage) -> dict[str, np.ndarray]:
        """Return the observation, the same after the perturbation, and the attention to each patch."""
        assert agent.observation is not None
        arrays = {
            "image": in_colour(agent.observation),
            "hidden": rewired.hidden.astype(np.uint8),
        }
        if agent.trace is None:
            return arrays
        if rewired.changes_anything:
            arrays["arrived"] = in_colour(agent.trace.arrived)
        if agent.trace.attention is not None:
            arrays["importance"] = np.asarray(agent.trace.attention).sum(0).astype(np.float32)
        return arrays


def begin(
    catalog: AgentCatalog, controls: Controls, changes: dict[str, Any], handled: int = 0
) -> Session:
    """Begin with some of the controls changed; wires of motors stay where they are in the same world.

    Args:
        catalog: The agents to choose from.
        controls: As they were.
        changes: As a message has them.
        handled: Its number.

    Raises:
        SensoriumError: There is no such agent, or the controls do not fit it.
    """
    after = messages.change(controls, changes)
    if any(getattr(controls, name) for name in messages.WIRES):
        worlds = [catalog.actors(each.agent).agent.recipe.env for each in (controls, after)]
        if worlds[0] != worlds[1]:
            after = messages.change(after, dict.fromkeys(messages.WIRES, ()) | changes)
    return Session(catalog, after, handled)


def compile_agent(catalog: AgentCatalog, agent: str) -> None:
    """Compile all that controls may need of an agent; SensoriumError if it cannot be shown."""
    session = Session(catalog, Controls(agent=agent))
    copies = range(1, messages.MOST_COPIES + 1) if session.fixed_size else (1,)
    for number in reversed(copies):
        session.handle(Message("set", 0, {"copies": number}))
        session.advance(1)
    session.handle(Message("push", 0, 0.0))
    session.frame()
    session.close()


def _few(motors: tuple[str, ...]) -> list[str]:
    return list(motors) if len(motors) <= messages.MOST_MOTORS else []


def _score(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "total": significant(snapshot.total),
        "time": snapshot.time,
        "ended": snapshot.ended,
    }


def _shrunk(image: UInt8[np.ndarray, "height width 3"]) -> UInt8[np.ndarray, "h w 3"]:
    """Scale an image down to the largest that is sent."""
    from PIL import Image

    small = Image.fromarray(image)
    small.thumbnail((_LARGEST_VIEW, _LARGEST_VIEW))
    return np.asarray(small)


def _as_bytes(values: Any) -> Int8[np.ndarray, "..."]:
    """Convert numbers from -1 to 1 to a byte each."""
    return np.rint(127 * np.clip(values, -1, 1)).astype(np.int8)
