"""Agents, each a composition of few parts.

| agent | encoder | acts by |
|---|---|---|
| AttentionNeuron | its layer: any number of sensors, any order | linear or small tanh network on the code |
| Deep Sets, Set Transformer | the same LSTM in each sensor, other pooling | the same |
| AttentionNeuron for images | patches of an image, in any order | AttentionAgent on the code |
| AttentionAgent | importance of the patches of an image | an LSTM on the places of the best |
| convolutional | a whole image, each pixel in its place | a ReLU network |
| motor neurons | sensors in their places, or anonymous | motors that find out what they do |
| recurrent | an LSTM on readings in fixed places and the last action | small tanh network on its state |
| feed-forward | fixed places | small tanh network on the readings |
"""

from sensorium.layers import KeyMap as KeyMap
from sensorium.policies.action_distributions import ActionDistribution as ActionDistribution
from sensorium.policies.action_distributions import Categorical as Categorical
from sensorium.policies.action_distributions import Gaussian as Gaussian
from sensorium.policies.action_distributions import distribution_of as distribution_of
from sensorium.policies.attention_agent import AttentionAgent as AttentionAgent
from sensorium.policies.attention_agent import AttentionAgentConfig as AttentionAgentConfig
from sensorium.policies.controller import Controller as Controller
from sensorium.policies.convolutional import ConvolutionalConfig as ConvolutionalConfig
from sensorium.policies.convolutional import ConvolutionalPolicy as ConvolutionalPolicy
from sensorium.policies.feed_forward import FeedForwardConfig as FeedForwardConfig
from sensorium.policies.feed_forward import FeedForwardPolicy as FeedForwardPolicy
from sensorium.policies.flat import from_vector as from_vector
from sensorium.policies.flat import num_parameters as num_parameters
from sensorium.policies.flat import to_vector as to_vector
from sensorium.policies.motor_graph import MotorGraphConfig as MotorGraphConfig
from sensorium.policies.motor_policy import (
    AnonymousMotorNeuronsConfig as AnonymousMotorNeuronsConfig,
)
from sensorium.policies.motor_policy import MotorCarry as MotorCarry
from sensorium.policies.motor_policy import MotorNeuronsConfig as MotorNeuronsConfig
from sensorium.policies.motor_policy import MotorPolicy as MotorPolicy
from sensorium.policies.policy import Policy as Policy
from sensorium.policies.policy import PolicyConfig as PolicyConfig
from sensorium.policies.policy import Trace as Trace
from sensorium.policies.policy import as_population as as_population
from sensorium.policies.policy import check_policy as check_policy
from sensorium.policies.policy import features_of as features_of
from sensorium.policies.recurrent import RecurrentConfig as RecurrentConfig
from sensorium.policies.recurrent import RecurrentPolicy as RecurrentPolicy
from sensorium.policies.set_policy import AttentionNeuronConfig as AttentionNeuronConfig
from sensorium.policies.set_policy import DeepSetsConfig as DeepSetsConfig
from sensorium.policies.set_policy import SetCarry as SetCarry
from sensorium.policies.set_policy import SetPolicy as SetPolicy
from sensorium.policies.set_policy import SetTransformerConfig as SetTransformerConfig
from sensorium.policies.vision import Reading as Reading
from sensorium.policies.vision import VisionAttentionNeuronConfig as VisionAttentionNeuronConfig
from sensorium.policies.vision import VisionCarry as VisionCarry
from sensorium.policies.vision import VisionPolicy as VisionPolicy
from sensorium.registry import register_all

register_all(globals(), PolicyConfig)
