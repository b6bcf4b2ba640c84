"""What commands take as flags: perturbations, the same for every command, and lengths of time.

Perturbations are imported when one is built, so that `sensorium --help` does not wait for JAX.
"""

import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from sensorium.errors import ConfigError, check_counts, did_you_mean

if TYPE_CHECKING:
    from sensorium.perturbations import Perturbation

Needed = Annotated[str, tyro.conf.arg(metavar="NAME")]
# Types of flags that may be left out; the help says what happens then, if it is not plain
_may_be_left_out = functools.partial(tyro.conf.arg, help_behavior_hint="")
Name = Annotated[str | None, _may_be_left_out(metavar="NAME")]
Time = Annotated[str | None, _may_be_left_out(metavar="TIME")]
Output = Annotated[str | None, _may_be_left_out(metavar="PATH")]
File = Annotated[Path | None, _may_be_left_out(metavar="PATH")]
Flag = Annotated[bool, _may_be_left_out()]
Count = Annotated[int | None, _may_be_left_out(metavar="N")]
Number = Annotated[float | None, _may_be_left_out(metavar="X")]


@dataclasses.dataclass(frozen=True)
class PerturbationFlags:
    """The perturbation that a set of flags asks for, in a fixed order.

    Sensors are dropped first, then copied, then noise is added, then some are silenced. The order is changed
    last, so that the noise is somewhere among the sensors. Of images first the background changes, then
    the modification, then patches are hidden, and their order is changed last. Motors are cut, scaled and
    turned around in the world; wires to them change last, nearest to the agent.
    """

    shuffle: Flag = False
    """Put the sensors, or the patches of images, in a random order at the start of each episode."""
    reshuffle_every: Count = None
    """Put them in a new order every so many steps."""
    duplicate: Count = None
    """Every sensor this many times, the code scaled to match."""
    noise_channels: Count = None
    """This many more channels of Gaussian noise."""
    noise_sigma: Number = None
    """Standard deviation of the noise; 0.1 by default."""
    drop: Count = None
    """This many sensors are missing, drawn for each episode."""
    silence: Count = None
    """This many sensors read zero, drawn for each episode."""
    occlude: Number = None
    """This share of the patches of images is black."""
    remove_patches: Number = None
    """This share of the patches of images is not there; to agents that need whole images they are black."""
    background: Name = None
    """An image, a folder of them, a video, or hills, waves, mosaic or crossroads, where CarRacing has
    grass."""
    modify: Name = None
    """What AttentionAgent's authors did to CarRacing: noise, colour, colour3, bars, blob or lane; or
    convolution, NetRand's random layer."""
    shuffle_motors: Flag = False
    """Put the motors in a random order, some of them turned around, at the start of each episode."""
    rewire_motors_every: Count = None
    """Do so anew every so many steps."""
    reverse_motors: Flag = False
    """Turn all motors around."""
    scale_motors: Number = None
    """Weaken each motor by a factor of its own, at least this one, drawn for each episode."""
    cut_motors: Number = None
    """This share of the motors does nothing, drawn for each episode."""
    lag_motors: Number = None
    """Motors do this share of what they did in the step before, and for the rest the new action."""

    def build(self, spec: int | tuple[int, ...] = 1) -> "Perturbation":
        """Make the perturbation.

        Args:
            spec: What the world shows; images are shuffled by their patches.

        Raises:
            ConfigError: A number is out of range.
            UnknownNameError: There is no such modification.
        """
        from sensorium import perturbations as known
        from sensorium.types import num_sensors_of

        images = num_sensors_of(spec) is None
        parts: list[Perturbation] = []
        if self.background is not None:
            parts.append(known.Background(self.background))
        if self.modify is not None:
            if self.modify not in known.MODIFICATIONS:
                raise did_you_mean("modification", self.modify, known.MODIFICATIONS)
            parts.append(known.MODIFICATIONS[self.modify])
        if self.occlude is not None:
            parts.append(known.Occlude(self.occlude))
        if self.remove_patches is not None:
            parts.append(known.Occlude(self.remove_patches, removed=True))
        if self.drop is not None:
            parts.append(known.Drop(self.drop))
        if self.duplicate is not None:
            parts.append(known.Duplicate(self.duplicate))
        if self.noise_channels is not None:
            noise = known.NoiseChannels(self.noise_channels)
            if self.noise_sigma is not None:
                noise = dataclasses.replace(noise, sigma=self.noise_sigma)
            parts.append(noise)
        elif self.noise_sigma is not None:
            raise ConfigError("noise_sigma goes with noise_channels, of which there are none.")
        if self.silence is not None:
            parts.append(known.Silence(self.silence))
        if self.shuffle:
            parts.append(known.ShufflePatches() if images else known.Shuffle())
        if self.reshuffle_every is not None:
            every = self.reshuffle_every
            check_counts(reshuffle_every=every)
            parts.append(known.ShufflePatches(every=every) if images else known.Reshuffle(every))
        if self.lag_motors is not None:
            parts.append(known.LagMotors(self.lag_motors))
        if self.cut_motors is not None:
            parts.append(known.CutMotors(self.cut_motors))
        if self.scale_motors is not None:
            parts.append(known.ScaleMotors(self.scale_motors))
        if self.reverse_motors:
            parts.append(known.ReverseMotors())
        if self.shuffle_motors or self.rewire_motors_every is not None:
            parts.append(known.RewireMotors(self.rewire_motors_every, signed=True))
        return known.compose(*parts)


NO_FLAGS = PerturbationFlags()
"""No perturbation."""


def seconds_of(budget: str | None) -> float | None:
    """Read a length of time such as 90s, 5m or 1h; a number alone is in seconds."""
    if budget is None:
        return None
    number, unit = budget.rstrip("smh"), budget[len(budget.rstrip("smh")) :]
    try:
        seconds = float(number) * {"": 1, "s": 1, "m": 60, "h": 3600}[unit]
    except (ValueError, KeyError):
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ConfigError(f"--budget takes a length of time such as 90s, 5m or 1h, got {budget!r}.")
    return seconds


def check_arguments(arguments: list[str]) -> None:
    """ConfigError if one is empty, as of a variable that a script has not set: it would name nothing."""
    for index, argument in enumerate(arguments):
        flag, is_flag, value = argument.partition("=")
        if argument and not (flag.startswith("--") and is_flag and not value):
            continue
        before = arguments[index - 1] if index else "sensorium"
        raise ConfigError(
            f"There is an empty argument after {flag or before!r}; say it or leave it out."
        )
