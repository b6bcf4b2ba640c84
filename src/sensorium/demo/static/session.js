// An episode of both agents, and what happens to their senses. Knows nothing of the page.
"use strict";
var Sensorium = Sensorium || {};

(() => {
  const NOISE = 0.1; // standard deviation of a channel of noise
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
      this.wires = []; // the sensor that arrives in each place, -1 for noise
      this.reset(2); // both agents swing up from this start
    }

    // A new start; wires stay as they are
    reset(seed, start) {
      this.seed = seed;
      this.random = generator(seed);
      start = start || Sensorium.CartPole.start(this.random);
      this.worlds = [new Sensorium.CartPole(start), new Sensorium.CartPole(start)];
      this.agent = new Sensorium.AttentionNeuron(this.weights.agents[this.name]);
      this.rival = new Sensorium.FeedForward(this.weights.rival);
      this.time = 0;
      this.readings = null;
      if (!this.wires.length) this.rewire();
      this.sense();
    }

    // Other channels, in their natural order; sensors first, noise last
    rewire() {
      const sensors = Sensorium.SENSORS.map((_, i) => i);
      this.wires = [
        ...Array.from({ length: this.copies }, () => sensors).flat(),
        ...Array(this.noise).fill(-1),
      ];
      if (this.agent) this.sense();
    }

    setChannels({ noise = this.noise, copies = this.copies }) {
      const shuffled = this.wires.some((sensor, i) => sensor !== this.natural(i));
      this.noise = noise;
      this.copies = copies;
      this.rewire();
      if (shuffled) this.shuffle();
    }

    natural(place) {
      const sensors = Sensorium.SENSORS.length;
      return place < sensors * this.copies ? place % sensors : -1;
    }

    // Readings move, memories stay where they are: what an agent remembers of a place is about another sensor
    shuffle() {
      for (let last = this.wires.length - 1; last > 0; last -= 1) {
        const other = Math.floor(this.random() * (last + 1));
        [this.wires[last], this.wires[other]] = [this.wires[other], this.wires[last]];
      }
      this.sense();
    }

    // A blow to both carts
    push() {
      const blow = this.random() < 0.5 ? -PUSH : PUSH;
      for (const world of this.worlds) world.state[1] += blow;
      return blow;
    }

    gauss() {
      return Math.sqrt(-2 * Math.log(1 - this.random())) * Math.cos(2 * Math.PI * this.random());
    }

    // What arrives at each place, for either agent; noise is the same for both
    sense() {
      const noise = this.wires.map((sensor) => (sensor < 0 ? NOISE * this.gauss() : 0));
      this.arriving = this.worlds.map((world) => {
        const observation = world.observe();
        return Float32Array.from(this.wires, (sensor, i) => (sensor < 0 ? noise[i] : observation[sensor]));
      });
    }

    // One step of 10 ms; true if the senses were reshuffled before it
    step() {
      const reshuffle = this.every > 0 && this.time > 0 && this.time % this.every === 0;
      if (reshuffle) this.shuffle();
      else if (this.time > 0) this.sense();
      const [world, other] = this.worlds;
      if (!world.over) {
        this.action = this.agent.act(this.arriving[0], 1 / this.copies);
        world.step(this.action);
      }
      if (!other.over) other.step(this.rival.act(this.arriving[1]));
      this.time += 1;
      return reshuffle;
    }

    get over() {
      return this.worlds.every((world) => world.over);
    }

    // How much is made of each place: mean size of the attention to it, 0 to 1
    heard() {
      return this.wires.map((_, place) => {
        const attention = this.agent.attention[place];
        return attention ? attention.reduce((sum, value) => sum + Math.abs(value), 0) / attention.length : 0;
      });
    }
  };
})();
