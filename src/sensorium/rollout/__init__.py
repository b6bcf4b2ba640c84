"""Policies x worlds -> returns."""

from sensorium.rollout.device import Episode as Episode
from sensorium.rollout.device import Totals as Totals
from sensorium.rollout.device import run_episode as run_episode
from sensorium.rollout.device import run_episodes as run_episodes
from sensorium.rollout.device import run_population as run_population
from sensorium.rollout.engine import DeviceEngine as DeviceEngine
from sensorium.rollout.engine import Engine as Engine
from sensorium.rollout.fused import fused_returns as fused_returns
from sensorium.rollout.host import HostEngine as HostEngine
from sensorium.rollout.select import EngineConfig as EngineConfig
from sensorium.rollout.select import by_kind as by_kind
from sensorium.rollout.select import check_world_name as check_world_name
from sensorium.rollout.select import make_world as make_world
from sensorium.rollout.select import open_engine as open_engine
from sensorium.rollout.select import require_device as require_device
from sensorium.rollout.sharding import each_share as each_share
from sensorium.rollout.sharding import over_devices as over_devices
from sensorium.rollout.sharding import returns_of_population as returns_of_population
from sensorium.rollout.sharding import this_machine as this_machine
from sensorium.rollout.sharding import usable_cores as usable_cores
from sensorium.rollout.sharding import use_all_cores as use_all_cores
from sensorium.rollout.sharding import why_jax_failed as why_jax_failed
