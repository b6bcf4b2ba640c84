"""Command-line flags of perturbations, the same for every command."""

import dataclasses

from sensorium.errors import ConfigError, check_counts, did_you_mean
from sensorium.perturbations.channels import Drop, Duplicate, NoiseChannels, Silence
from sensorium.perturbations.combined import compose
from sensorium.perturbations.order import Reshuffle, Shuffle
from sensorium.perturbations.patches import Occlude, ShufflePatches
from sensorium.perturbations.perturbation import Perturbation
from sensorium.perturbations.racing import Background, Bars, Blob, Colour, FakeLane, NoiseBackground
from sensorium.perturbations.random_convolution import RandomConvolution
from sensorium.types import Senses

MODIFICATIONS: dict[str, Perturbation] = {
    "noise": NoiseBackground(),
    "colour": Colour(),
    "colour3": Colour(each_channel=True),
    "bars": Bars(),
    "blob": Blob(),
    "lane": FakeLane(),
    "convolution": RandomConvolution(alpha=0.0, every=0),
}
"""What AttentionAgent's authors did to CarRacing, a lane beside the road, and NetRand's layer, by name."""


@dataclasses.dataclass(frozen=True)
class PerturbationFlags:
    """The perturbation that a set of flags asks for, in a fixed order.

    Sensors are dropped first, then copied, then noise is added, then some are silenced. The order is changed
    last, so that the noise is somewhere among the sensors. Of pictures first the background changes, then
    the modification, then patches are hidden, and their order is changed last.
    """

    shuffle: bool = False
    """Put the sensors, or the patches of pictures, in a random order at the start of each episode."""
    reshuffle_every: int | None = None
    """Put them in a new order every so many steps."""
    duplicate: int | None = None
    """Every sensor this many times, the code scaled to match."""
    noise_channels: int | None = None
    """This many more channels of Gaussian noise."""
    noise_sigma: float = NoiseChannels.sigma
    """Standard deviation of the noise."""
    drop: int | None = None
    """This many sensors are missing, others each episode."""
    silence: int | None = None
    """This many sensors read zero, others each episode."""
    occlude: float | None = None
    """This share of the patches of pictures is black."""
    background: str | None = None
    """A picture, a folder of them, a video, or hills, waves, mosaic or crossroads, where CarRacing has
    grass."""
    modify: str | None = None
    """What AttentionAgent's authors did to CarRacing: noise, colour, colour3, bars, blob or lane; or
    convolution, NetRand's random layer."""

    def build(self, senses: Senses = 1) -> Perturbation:
        """Make the perturbation.

        Args:
            senses: What the world shows; pictures are shuffled by their patches.

        Raises:
            ConfigError: A number is out of range.
            UnknownNameError: There is no such modification.
        """
        scalar = isinstance(senses, int)
        parts: list[Perturbation] = []
        if self.background is not None:
            parts.append(Background(self.background))
        if self.modify is not None:
            if self.modify not in MODIFICATIONS:
                raise did_you_mean("modification", self.modify, MODIFICATIONS)
            parts.append(MODIFICATIONS[self.modify])
        if self.occlude is not None:
            parts.append(Occlude(self.occlude))
        if self.drop is not None:
            parts.append(Drop(self.drop))
        if self.duplicate is not None:
            parts.append(Duplicate(self.duplicate))
        if self.noise_channels is not None:
            parts.append(NoiseChannels(self.noise_channels, self.noise_sigma))
        elif self.noise_sigma != NoiseChannels.sigma:
            raise ConfigError("noise_sigma goes with noise_channels, of which there are none.")
        if self.silence is not None:
            parts.append(Silence(self.silence))
        if self.shuffle:
            parts.append(Shuffle() if scalar else ShufflePatches())
        if self.reshuffle_every is not None:
            every = self.reshuffle_every
            check_counts(reshuffle_every=every)
            parts.append(Reshuffle(every) if scalar else ShufflePatches(every=every))
        return compose(*parts)


NO_FLAGS = PerturbationFlags()
"""Nothing happens."""
