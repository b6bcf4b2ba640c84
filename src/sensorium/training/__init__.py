"""Ways to train, and one loop around them."""

from sensorium.registry import register, register_all
from sensorium.training.budget import Budget as Budget
from sensorium.training.coaching import Coaching as Coaching
from sensorium.training.coaching import CoachingConfig as CoachingConfig
from sensorium.training.dagger import Dagger as Dagger
from sensorium.training.dagger import DaggerConfig as DaggerConfig
from sensorium.training.evolution import Evolution as Evolution
from sensorium.training.evolution import EvolutionConfig as EvolutionConfig
from sensorium.training.ppo import Ppo as Ppo
from sensorium.training.ppo import PpoConfig as PpoConfig
from sensorium.training.run import run as run
from sensorium.training.run_directory import RunDirectory as RunDirectory
from sensorium.training.sb3_ppo import Sb3PpoConfig as Sb3PpoConfig
from sensorium.training.shac import Shac as Shac
from sensorium.training.shac import ShacConfig as ShacConfig
from sensorium.training.strategies import Strategy as Strategy
from sensorium.training.strategies import StrategyConfig as StrategyConfig
from sensorium.training.trainer import Trainer as Trainer
from sensorium.training.trainer import TrainerConfig as TrainerConfig
from sensorium.training.trainer import TrainingContext as TrainingContext

register_all(globals(), TrainerConfig)
register(StrategyConfig)
