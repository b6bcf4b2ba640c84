// The two agents, one step at a time, with the weights of weights.js.
"use strict";
var Sensorium = Sensorium || {};

(() => {
  const sigmoid = (x) => 1 / (1 + Math.exp(-x));
  const dot = (row, values) => row.reduce((sum, weight, i) => sum + weight * values[i], 0);
  const network = (layers, values) =>
    layers.reduce((x, { weight, bias }) =>
      Float32Array.from(weight, (row, i) => Math.tanh(bias[i] + dot(row, x))), values);

  // AttentionNeuron: one small LSTM a sensor, the same for all, and attention that pools what they say
  Sensorium.AttentionNeuron = class {
    constructor(weights) {
      this.weights = weights;
      this.width = weights.recurrent[0].length;
      this.codeSize = weights.look.length;
      this.hidden = []; // of each place, Float32Array
      this.cell = [];
      this.feedback = new Float32Array(weights.inputs[0].length - 1);
      this.attention = []; // of each place, to each query
      this.code = new Float32Array(this.codeSize);
    }

    // As many places as there are readings; places that are new remember nothing
    resize(count) {
      for (const memory of [this.hidden, this.cell]) {
        memory.length = Math.min(memory.length, count);
        while (memory.length < count) memory.push(new Float32Array(this.width));
      }
    }

    // From readings, one a place, to an action in [-1, 1]
    act(readings, codeScale = 1) {
      const { inputs, recurrent, bias, look, lookBias, layers, hearsCode } = this.weights;
      const width = this.width;
      this.resize(readings.length);
      // What all sensors hear is summed once
      const shared = inputs.map((row, gate) => bias[gate] +
        this.feedback.reduce((sum, value, i) => sum + row[i + 1] * value, 0));
      const gates = new Float64Array(4 * width);
      const total = new Float64Array(this.codeSize);
      this.attention.length = readings.length;
      readings.forEach((reading, place) => {
        const hidden = this.hidden[place], cell = this.cell[place];
        for (let gate = 0; gate < gates.length; gate += 1) {
          let sum = shared[gate] + inputs[gate][0] * reading;
          for (let unit = 0; unit < width; unit += 1) sum += recurrent[gate][unit] * hidden[unit];
          gates[gate] = sum;
        }
        for (let unit = 0; unit < width; unit += 1) {
          const [enter, keep, offer, speak] = [0, 1, 2, 3].map((part) => gates[part * width + unit]);
          cell[unit] = sigmoid(keep) * cell[unit] + sigmoid(enter) * Math.tanh(offer);
          hidden[unit] = sigmoid(speak) * Math.tanh(cell[unit]);
        }
        const attention = Float32Array.from(look, (row, query) =>
          Math.tanh(lookBias[query] + dot(row, hidden)));
        for (let query = 0; query < total.length; query += 1) total[query] += attention[query] * reading;
        this.attention[place] = attention;
      });
      this.code = Float32Array.from(total, (sum) => Math.tanh(codeScale * this.weights.codeScale * sum));
      const action = network(layers, this.code);
      this.feedback = hearsCode ? Float32Array.of(...action, ...this.code) : action;
      return action[0];
    }
  };

  // Feed-forward: every input has its place; of more it hears the first ones
  Sensorium.FeedForward = class {
    constructor(weights) {
      this.weights = weights;
    }

    act(readings) {
      const { scales, layers } = this.weights;
      return network(layers, Float32Array.from(scales, (scale, i) => readings[i] / scale))[0];
    }
  };
})();
