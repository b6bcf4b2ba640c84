"""Ways to train, and one loop around them."""

from sensorium.registry import register
from sensorium.training.cloning import Cloning as Cloning
from sensorium.training.cloning import CloningConfig as CloningConfig
from sensorium.training.coaching import Coaching as Coaching
from sensorium.training.coaching import CoachingConfig as CoachingConfig
from sensorium.training.controller_imitation import ControllerImitation as ControllerImitation
from sensorium.training.controller_imitation import (
    ControllerImitationConfig as ControllerImitationConfig,
)
from sensorium.training.controller_ppo import ControllerPpo as ControllerPpo
from sensorium.training.controller_ppo import ControllerPpoConfig as ControllerPpoConfig
from sensorium.training.evolution import Evolution as Evolution
from sensorium.training.evolution import EvolutionConfig as EvolutionConfig
from sensorium.training.imitation import ImitationConfig as ImitationConfig
from sensorium.training.recurrent_ppo import RecurrentPpo as RecurrentPpo
from sensorium.training.recurrent_ppo import RecurrentPpoConfig as RecurrentPpoConfig
from sensorium.training.run import Budget as Budget
from sensorium.training.run import RunDirectory as RunDirectory
from sensorium.training.run import run as run
from sensorium.training.sb3_ppo import Sb3PpoConfig as Sb3PpoConfig
from sensorium.training.short_horizon import ShortHorizon as ShortHorizon
from sensorium.training.short_horizon import ShortHorizonConfig as ShortHorizonConfig
from sensorium.training.strategies import Strategy as Strategy
from sensorium.training.strategies import StrategyConfig as StrategyConfig
from sensorium.training.trainer import Trainer as Trainer
from sensorium.training.trainer import TrainerConfig as TrainerConfig
from sensorium.training.trainer import TrainingContext as TrainingContext

for _config in (
    CloningConfig,
    CoachingConfig,
    ControllerImitationConfig,
    ControllerPpoConfig,
    EvolutionConfig,
    ImitationConfig,
    RecurrentPpoConfig,
    Sb3PpoConfig,
    ShortHorizonConfig,
    StrategyConfig,
):
    register(_config)
