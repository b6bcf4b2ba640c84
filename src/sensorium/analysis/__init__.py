"""What happened inside an agent: traces, figures, videos. They need the extra `draw`."""

from importlib.util import find_spec

from sensorium.errors import MissingExtraError

for _package in ("imageio", "imageio_ffmpeg", "matplotlib", "sklearn"):
    if find_spec(_package) is None:
        raise MissingExtraError(
            f"Figures, videos and tables need {_package}: pip install 'sensorium[draw]'."
        )
