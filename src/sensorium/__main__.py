"""`python -m sensorium` is `sensorium`."""

from sensorium.cli import main

if __name__ == "__main__":
    main()
