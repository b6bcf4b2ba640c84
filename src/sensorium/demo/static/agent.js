// The two agents, one step at a time, with the weights of weights.js.
"use strict";
var Sensorium = Sensorium || {};

(() => {
  const sigmoid = (x) => 1 / (1 + Math.exp(-x));
  const dot = (row, values) => row.reduce((sum, weight, i) => sum + weight * values[i], 0);
  const network = (layers, values) =>
    layers.reduce((x, { weight, bias }) =>
      Float32Array.from(weight, (row, i) => Math.tanh(bias[i] + dot(row, x))), values);

  // AttentionNeuron: one small LSTM for each sensor, with shared weights, and attention that pools them
  Sensorium.AttentionNeuron = class {
    constructor(weights) {
      this.weights = weights;
      this.width = weights.recurrent[0].length;
      this.codeSize = weights.queries.length;
      this.hidden = []; // of each input, Float32Array
      this.cell = [];
      this.feedback = new Float32Array(weights.inputs[0].length - 1);
      this.attention = []; // of each input, to each query
      this.code = new Float32Array(this.codeSize);
    }

    // As many inputs as there are readings; new ones have a blank recurrent state
    resize(count) {
      for (const memory of [this.hidden, this.cell]) {
        memory.length = Math.min(memory.length, count);
        while (memory.length < count) memory.push(new Float32Array(this.width));
      }
    }

    // From readings, one for each input, to an action in [-1, 1]
    act(readings, codeScale = 1) {
      const { inputs, recurrent, bias, queries, queryBias, layers, codeFeedback } = this.weights;
      const width = this.width;
      this.resize(readings.length);
      // What is the same for all sensors is summed once
      const shared = inputs.map((row, gate) => bias[gate] +
        this.feedback.reduce((sum, value, i) => sum + row[i + 1] * value, 0));
      const gates = new Float64Array(4 * width);
      const total = new Float64Array(this.codeSize);
      this.attention.length = readings.length;
      readings.forEach((reading, input) => {
        const hidden = this.hidden[input], cell = this.cell[input];
        for (let gate = 0; gate < gates.length; gate += 1) {
          let sum = shared[gate] + inputs[gate][0] * reading;
          for (let unit = 0; unit < width; unit += 1) sum += recurrent[gate][unit] * hidden[unit];
          gates[gate] = sum;
        }
        for (let unit = 0; unit < width; unit += 1) {
          const [add, forget, candidate, output] = [0, 1, 2, 3].map((part) => gates[part * width + unit]);
          cell[unit] = sigmoid(forget) * cell[unit] + sigmoid(add) * Math.tanh(candidate);
          hidden[unit] = sigmoid(output) * Math.tanh(cell[unit]);
        }
        const attention = Float32Array.from(queries, (row, query) =>
          Math.tanh(queryBias[query] + dot(row, hidden)));
        for (let query = 0; query < total.length; query += 1) total[query] += attention[query] * reading;
        this.attention[input] = attention;
      });
      this.code = Float32Array.from(total, (sum) => Math.tanh(codeScale * this.weights.codeScale * sum));
      const action = network(layers, this.code);
      this.feedback = codeFeedback ? Float32Array.of(...action, ...this.code) : action;
      return action[0];
    }
  };

  // Feed-forward: needs its inputs in their natural order, and gets the first ones
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
