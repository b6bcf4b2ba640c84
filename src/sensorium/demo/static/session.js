// An episode of the agent and the baseline with perturbed observations; independent of the page.
"use strict";
var Sensorium = Sensorium || {};

(() => {
  const NOISE = 0.1; // standard deviation of noise channels
  const PUSH = 3; // m/s

  // mulberry32: small, seeded, the same in every browser
  const generator = (seed) => () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };

  Sensorium.Session = class {
    constructor(weights, name) {
      this.weights = weights;
      this.name = name;
      this.noise = 0;
      this.copies = 1;
      this.every = 0; // steps between reshuffles; 0 for never
      this.sensorOfChannel = []; // the sensor at each input, -1 for noise
      this.reset(2); // both swing up from this start
    }

    // A new start; the order stays as it is
    reset(seed, start) {
      this.seed = seed;
      this.random = generator(seed);
      start = start || Sensorium.CartPole.start(this.random);
      this.worlds = [new Sensorium.CartPole(start), new Sensorium.CartPole(start)];
      this.agent = new Sensorium.AttentionNeuron(this.weights.agents[this.name]);
      this.baseline = new Sensorium.FeedForward(this.weights.baseline);
      this.time = 0;
      this.readings = null;
      if (!this.sensorOfChannel.length) this.rewire();
      this.sense();
    }

    // Other channels, in their natural order; sensors first, noise last
    rewire() {
      const sensors = Sensorium.SENSORS.map((_, i) => i);
      this.sensorOfChannel = [
        ...Array.from({ length: this.copies }, () => sensors).flat(),
        ...Array(this.noise).fill(-1),
      ];
      if (this.agent) this.sense();
    }

    setChannels({ noise = this.noise, copies = this.copies }) {
      const shuffled = this.sensorOfChannel.some((sensor, i) => sensor !== this.natural(i));
      this.noise = noise;
      this.copies = copies;
      this.rewire();
      if (shuffled) this.shuffle();
    }

    natural(input) {
      const sensors = Sensorium.SENSORS.length;
      return input < sensors * this.copies ? input % sensors : -1;
    }

    // Readings move, recurrent states stay: that of an input then belongs to another sensor
    shuffle() {
      for (let last = this.sensorOfChannel.length - 1; last > 0; last -= 1) {
        const other = Math.floor(this.random() * (last + 1));
        [this.sensorOfChannel[last], this.sensorOfChannel[other]] = [this.sensorOfChannel[other], this.sensorOfChannel[last]];
      }
      this.sense();
    }

    // Push both carts to a random side
    push() {
      const change = this.random() < 0.5 ? -PUSH : PUSH;
      for (const world of this.worlds) world.state[1] += change;
      return change;
    }

    gauss() {
      return Math.sqrt(-2 * Math.log(1 - this.random())) * Math.cos(2 * Math.PI * this.random());
    }

    // Compute the inputs of both; noise is the same
    sense() {
      const noise = this.sensorOfChannel.map((sensor) => (sensor < 0 ? NOISE * this.gauss() : 0));
      this.observations = this.worlds.map((world) => {
        const observation = world.observe();
        return Float32Array.from(this.sensorOfChannel, (sensor, i) => (sensor < 0 ? noise[i] : observation[sensor]));
      });
    }

    // Take one step of 10 ms; returns whether the sensors were reshuffled before it
    step() {
      const reshuffle = this.every > 0 && this.time > 0 && this.time % this.every === 0;
      if (reshuffle) this.shuffle();
      else if (this.time > 0) this.sense();
      const [world, other] = this.worlds;
      if (!world.over) {
        this.action = this.agent.act(this.observations[0], 1 / this.copies);
        world.step(this.action);
      }
      if (!other.over) other.step(this.baseline.act(this.observations[1]));
      this.time += 1;
      return reshuffle;
    }

    get over() {
      return this.worlds.every((world) => world.over);
    }

    // Mean absolute attention to each input, 0 to 1
    meanAttention() {
      return this.sensorOfChannel.map((_, input) => {
        const attention = this.agent.attention[input];
        return attention ? attention.reduce((sum, value) => sum + Math.abs(value), 0) / attention.length : 0;
      });
    }
  };
})();
