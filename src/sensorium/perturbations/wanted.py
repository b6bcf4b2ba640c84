"""From flags to a perturbation."""

from sensorium.errors import did_you_mean
from sensorium.perturbations.channels import Drop, Duplicate, NoiseChannels
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


def perturb(
    senses: Senses = 1,
    *,
    shuffle: bool = False,
    reshuffle_every: int | None = None,
    duplicate: int | None = None,
    noise_channels: int | None = None,
    noise_sigma: float = 0.1,
    drop: int | None = None,
    occlude: float | None = None,
    background: str | None = None,
    modify: str | None = None,
) -> Perturbation:
    """The perturbation that a set of flags asks for, in a fixed order.

    Sensors are dropped first, then copied, then noise is added, and the order is changed last, so that
    the noise is somewhere among the sensors. Of pictures first the background changes, then what else is
    seen, then patches are hidden, and the order of patches is changed last.

    Args:
        senses: What the world shows; pictures are shuffled by their patches.
        shuffle: A random order.
        reshuffle_every: A new one every so many steps.
        duplicate: Every sensor so many times.
        noise_channels: So many more sensors of noise.
        noise_sigma: Its standard deviation.
        drop: So many sensors are missing.
        occlude: Share of the patches that are hidden.
        background: See `Background`.
        modify: One of `MODIFICATIONS`.

    Raises:
        ConfigError: A number is out of range.
        UnknownNameError: There is no such modification.
    """
    parts: list[Perturbation] = []
    if background is not None:
        parts.append(Background(background))
    if modify is not None:
        if modify not in MODIFICATIONS:
            raise did_you_mean("modification", modify, MODIFICATIONS)
        parts.append(MODIFICATIONS[modify])
    if occlude is not None:
        parts.append(Occlude(occlude))
    if drop is not None:
        parts.append(Drop(drop))
    if duplicate is not None:
        parts.append(Duplicate(duplicate))
    if noise_channels is not None:
        parts.append(NoiseChannels(noise_channels, noise_sigma))
    scalar = isinstance(senses, int)
    if shuffle:
        parts.append(Shuffle() if scalar else ShufflePatches())
    if reshuffle_every is not None:
        parts.append(
            Reshuffle(reshuffle_every) if scalar else ShufflePatches(every=reshuffle_every)
        )
    return compose(*parts)
