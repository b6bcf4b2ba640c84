"""Perturbations of observations: small values that compose, used unchanged everywhere.

| to scalar sensors, or to entities row by row | what it does |
|---|---|
| `Shuffle()` | random order, fixed for an episode |
| `Reshuffle(every)` | new random order every so many steps |
| `Duplicate(copies)` | every sensor several times |
| `DuplicateSome(most)` | up to so many copies of some |
| `NoiseChannels(count, sigma)` | more channels, of noise |
| `Drop(count)` | sensors are missing |
| `Silence(count)` | sensors read zero |

| to images | what it does |
|---|---|
| `ShufflePatches(size, every)` | patches in random order, a new one every so many steps if asked |
| `Occlude(share)` | some patches are black; with `removed=True` they are not there |
| `HideRows(rows)` | the lowest rows are black |
| `Background(source)` | an image, a video or a drawn scene where CarRacing has grass |
| `NoiseBackground()` | noise there |
| `RandomBackground()` | an image there that is drawn anew for each episode |
| `Colour(amount)` | road and grass in other shades |
| `Bars()`, `Blob()` | black bars at the sides, a red square |
| `FakeLane(offset)` | a second road beside the first |
| `RandomConvolution(alpha, every)` | a convolution of random weights, as in NetRand |

| to the agent's actions | what it does |
|---|---|
| `RewireMotors(every, signed)` | random order and signs, new ones every so many steps |
| `ReverseMotors(after)` | all signs change, from a step on |
| `ScaleMotors(least)` | each is weaker by a factor of its own |
| `CutMotors(share, after)` | some do nothing, from a step on |
| `LagMotors(share)` | each lags behind its action |

`compose(a, b, ...)` makes one of several; `OneOf((a, b, ...))` draws one of them for each episode.
"""

from sensorium.perturbations.backgrounds import SCENES as SCENES
from sensorium.perturbations.backgrounds import each_background as each_background
from sensorium.perturbations.channels import Drop as Drop
from sensorium.perturbations.channels import Duplicate as Duplicate
from sensorium.perturbations.channels import DuplicateSome as DuplicateSome
from sensorium.perturbations.channels import NoiseChannels as NoiseChannels
from sensorium.perturbations.channels import Silence as Silence
from sensorium.perturbations.combined import Compose as Compose
from sensorium.perturbations.combined import OneOf as OneOf
from sensorium.perturbations.combined import compose as compose
from sensorium.perturbations.image import ImagePerturbation as ImagePerturbation
from sensorium.perturbations.modifications import MODIFICATIONS as MODIFICATIONS
from sensorium.perturbations.motors import CutMotors as CutMotors
from sensorium.perturbations.motors import LagMotors as LagMotors
from sensorium.perturbations.motors import ReverseMotors as ReverseMotors
from sensorium.perturbations.motors import RewireMotors as RewireMotors
from sensorium.perturbations.motors import ScaleMotors as ScaleMotors
from sensorium.perturbations.order import Reshuffle as Reshuffle
from sensorium.perturbations.order import Shuffle as Shuffle
from sensorium.perturbations.patches import Occlude as Occlude
from sensorium.perturbations.patches import ShufflePatches as ShufflePatches
from sensorium.perturbations.perturbation import Identity as Identity
from sensorium.perturbations.perturbation import Perturbation as Perturbation
from sensorium.perturbations.perturbation import begin as begin
from sensorium.perturbations.perturbation import check_perturbation as check_perturbation
from sensorium.perturbations.racing import Background as Background
from sensorium.perturbations.racing import Bars as Bars
from sensorium.perturbations.racing import Blob as Blob
from sensorium.perturbations.racing import Colour as Colour
from sensorium.perturbations.racing import FakeLane as FakeLane
from sensorium.perturbations.racing import HideRows as HideRows
from sensorium.perturbations.racing import NoiseBackground as NoiseBackground
from sensorium.perturbations.random_background import RandomBackground as RandomBackground
from sensorium.perturbations.random_convolution import RandomConvolution as RandomConvolution
from sensorium.registry import register_all

register_all(globals(), Perturbation)
