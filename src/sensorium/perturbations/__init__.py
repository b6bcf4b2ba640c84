"""What can happen to the senses: small values that compose, used unchanged everywhere.

| perturbation | what it does |
|---|---|
| `Shuffle()` | random order, fixed for an episode |
| `Reshuffle(every)` | new random order every so many steps |
| `Duplicate(copies)` | every sensor several times |
| `NoiseChannels(count, sigma)` | more channels, of noise |
| `Drop(count)` | sensors are missing |
| `compose(a, b, ...)` | one after another |
"""

from sensorium.perturbations.channels import Drop as Drop
from sensorium.perturbations.channels import Duplicate as Duplicate
from sensorium.perturbations.channels import NoiseChannels as NoiseChannels
from sensorium.perturbations.order import Reshuffle as Reshuffle
from sensorium.perturbations.order import Shuffle as Shuffle
from sensorium.perturbations.perturbation import Compose as Compose
from sensorium.perturbations.perturbation import Identity as Identity
from sensorium.perturbations.perturbation import Perturbation as Perturbation
from sensorium.perturbations.perturbation import check_perturbation as check_perturbation
from sensorium.perturbations.perturbation import compose as compose


def perturb(
    *,
    shuffle: bool = False,
    reshuffle_every: int | None = None,
    duplicate: int | None = None,
    noise_channels: int | None = None,
    noise_sigma: float = 0.1,
    drop: int | None = None,
) -> Perturbation:
    """The perturbation that a set of flags asks for, in a fixed order.

    Sensors are dropped first, then copied, then noise is added, and the order is changed last, so that
    the noise is somewhere among the sensors.

    Raises:
        ConfigError: A number is out of range.
    """
    parts: list[Perturbation] = []
    if drop is not None:
        parts.append(Drop(drop))
    if duplicate is not None:
        parts.append(Duplicate(duplicate))
    if noise_channels is not None:
        parts.append(NoiseChannels(noise_channels, noise_sigma))
    if shuffle:
        parts.append(Shuffle())
    if reshuffle_every is not None:
        parts.append(Reshuffle(reshuffle_every))
    return compose(*parts)
