"""Scores of agents, with intervals; recovery after a shuffle; speed."""

from sensorium.evaluation.evaluate import Scores as Scores
from sensorium.evaluation.evaluate import as_shown as as_shown
from sensorium.evaluation.evaluate import evaluate as evaluate
from sensorium.evaluation.evaluate import evaluation_keys as evaluation_keys
from sensorium.evaluation.recovery import recovery_curve as recovery_curve
from sensorium.evaluation.statistics import Summary as Summary
from sensorium.evaluation.statistics import mean_interval as mean_interval
from sensorium.evaluation.statistics import paired_difference as paired_difference
from sensorium.evaluation.statistics import summarise as summarise
