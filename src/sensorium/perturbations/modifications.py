"""Changes of the appearance of CarRacing, by the names that commands use."""

from sensorium.perturbations.perturbation import Perturbation
from sensorium.perturbations.racing import Bars, Blob, Colour, FakeLane, NoiseBackground
from sensorium.perturbations.random_convolution import RandomConvolution

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
