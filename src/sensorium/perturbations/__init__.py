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
