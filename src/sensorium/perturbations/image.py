"""What all perturbations of images have in common."""

import abc
from typing import Any, ClassVar

from jaxtyping import Array, Int

from sensorium.errors import ConfigError
from sensorium.perturbations.perturbation import Perturbation
from sensorium.types import Key, ObservationSpec, PyTree, in_words


class ImagePerturbation(Perturbation):
    """Perturbs images (height, width, channels), bytes or floats from 0 to 255, and keeps their shape."""

    needs_colour: ClassVar[bool] = False
    """Whether images must have red, green and blue."""

    def check(self, height: int, width: int, channels: int) -> None:
        """Raise ConfigError if images of that shape cannot be perturbed."""

    def shape_of(self, spec: ObservationSpec) -> tuple[int, int, int]:
        """Return height, width and channels; ConfigError if `spec` is not of images, or they do not fit."""
        if not isinstance(spec, tuple) or len(spec) != 3:
            raise ConfigError(
                f"{str(self)!r} happens to images of height x width x channels, not to "
                f"{in_words(spec)}."
            )
        height, width, channels = spec
        if self.needs_colour and channels != 3:
            raise ConfigError(
                f"{str(self)!r} happens to images of red, green and blue, not of {channels} channel(s)."
            )
        self.check(height, width, channels)
        return height, width, channels

    def output_spec(self, spec: ObservationSpec) -> ObservationSpec:
        """Return the shape, unchanged."""
        return self.shape_of(spec)

    def init(self, key: Key, spec: ObservationSpec) -> PyTree:
        """Return no state; for those that keep nothing."""
        del key
        self.shape_of(spec)
        return ()

    @abc.abstractmethod
    def apply(self, key: Key, state: Any, observation: Any) -> tuple[Any, PyTree]:
        """Perturb one image; the result has its shape and dtype, but for patches that are removed."""

    def sensor_of_channel(self, state: PyTree, spec: ObservationSpec) -> Int[Array, " channels"]:
        """Raise ConfigError: images have no channels to follow."""
        raise ConfigError(f"{str(self)!r} happens to images, which have no scalar sensors to name.")
