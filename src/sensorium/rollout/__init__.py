"""Policies x worlds -> returns."""

from sensorium.rollout.device import Episode as Episode
from sensorium.rollout.device import run_episode as run_episode
from sensorium.rollout.device import run_episodes as run_episodes
from sensorium.rollout.device import run_population as run_population
from sensorium.rollout.fused import fused_returns as fused_returns
from sensorium.rollout.sharding import over_devices as over_devices
from sensorium.rollout.sharding import returns_of_population as returns_of_population
from sensorium.rollout.sharding import use_all_cores as use_all_cores
