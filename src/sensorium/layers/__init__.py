"""Pure mathematics on arrays: what the papers are about, and the usual alternatives.

Every pooling layer has the same call, `layer(observation, previous_action, memory)`, and returns
`Pooled(code, memory, attention)`.
"""

from sensorium.layers.attention_neuron import AttentionNeuron as AttentionNeuron
from sensorium.layers.attention_neuron import Pooled as Pooled
from sensorium.layers.attention_neuron import attend as attend
from sensorium.layers.blockwise import sum_over_blocks as sum_over_blocks
from sensorium.layers.convolution import Convolution as Convolution
from sensorium.layers.convolution import convolve_by_product as convolve_by_product
from sensorium.layers.convolution import convolved as convolved
from sensorium.layers.linear import Linear as Linear
from sensorium.layers.lstm import LSTM as LSTM
from sensorium.layers.nonlinear_keys import InvariantNonlinearKeys as InvariantNonlinearKeys
from sensorium.layers.nonlinear_keys import KeyMap as KeyMap
from sensorium.layers.nonlinear_keys import NonlinearKeys as NonlinearKeys
from sensorium.layers.nonlinear_keys import PublishedNonlinearKeys as PublishedNonlinearKeys
from sensorium.layers.nonlinear_keys import nonlinear_map as nonlinear_map
from sensorium.layers.patch_attention import PatchAttention as PatchAttention
from sensorium.layers.positional import positional_table as positional_table
from sensorium.layers.sensor_lstm import SensorLSTM as SensorLSTM
from sensorium.layers.sensor_lstm import SensorMemory as SensorMemory
from sensorium.layers.sensor_lstm import split_absent as split_absent
from sensorium.layers.sets import DeepSets as DeepSets
from sensorium.layers.sets import SetTransformer as SetTransformer
from sensorium.layers.vision_attention import VisionAttentionNeuron as VisionAttentionNeuron
