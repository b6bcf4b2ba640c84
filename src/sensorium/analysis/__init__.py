"""What happened inside an agent: traces, figures, videos. They need the extra `draw`."""

from importlib.util import find_spec

from sensorium.errors import needs

with needs("draw", "Drawing"):
    for _package in ("imageio", "imageio_ffmpeg", "matplotlib", "sklearn"):
        if find_spec(_package) is None:
            raise ImportError(name=_package)
