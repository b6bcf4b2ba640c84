// CartPoleSwingUpHarder, as src/sensorium/envs/cartpole_swingup.py: the same constants and the same Euler step,
// rounded to float32 wherever JAX rounds.
"use strict";
var Sensorium = Sensorium || {};

(() => {
  const f = Math.fround;
  const GRAVITY = f(9.82), CART = f(0.5), POLE = f(0.5), FRICTION = f(0.1), FORCE = 10;
  const STEP = f(0.01), TOTAL = 1, MOMENT = f(0.3), LENGTH = f(0.6);

  Sensorium.TRACK = 2.4; // m from the middle to either end
  Sensorium.POLE_LENGTH = 0.6; // m
  Sensorium.TIME_STEP = 0.01; // s
  Sensorium.SENSORS = ["position", "velocity", "cos angle", "sin angle", "angular velocity"];

  Sensorium.CartPole = class {
    // state: position (m), velocity (m/s), angle (rad, 0 upright), angular velocity (rad/s)
    constructor(state) {
      this.state = Float32Array.from(state);
      this.time = 0;
      this.total = 0;
      this.reward = 0;
      this.over = false;
    }

    // A start as the world draws it; random() is uniform in [0, 1)
    static start(random) {
      const within = (limit) => f(limit * (2 * random() - 1));
      return [within(2.4), within(10), f(Math.PI + within(Math.PI / 2)), within(10)];
    }

    observe() {
      const [position, velocity, angle, spin] = this.state;
      return Float32Array.of(position, velocity, Math.cos(angle), Math.sin(angle), spin);
    }

    step(action) {
      const [position, velocity, angle, spin] = this.state;
      const push = f(f(FORCE * f(Math.min(1, Math.max(-1, action)))) - f(FRICTION * velocity));
      const sine = f(Math.sin(angle)), cosine = f(Math.cos(angle));
      const swing = f(f(MOMENT * f(spin * spin)) * sine);
      const acceleration = f(
        f(f(f(-2 * swing) + f(f(f(3 * POLE * GRAVITY) * sine) * cosine)) + f(4 * push)) /
          f(4 * TOTAL - f(3 * POLE * f(cosine * cosine))));
      const turning = f(
        f(f(f(f(-3 * swing) * cosine) + f(f(6 * TOTAL * GRAVITY) * sine)) + f(f(6 * push) * cosine)) /
          f(4 * LENGTH * TOTAL - f(3 * MOMENT * f(cosine * cosine))));
      this.state[0] = position + f(STEP * velocity);
      this.state[1] = velocity + f(STEP * acceleration);
      this.state[2] = angle + f(STEP * spin);
      this.state[3] = spin + f(STEP * turning);
      this.time += 1;
      const upright = (Math.cos(this.state[2]) + 1) / 2;
      this.reward = upright * Math.cos((Math.PI / 2) * (this.state[0] / Sensorium.TRACK));
      this.total += this.reward;
      this.over = Math.abs(this.state[0]) > f(Sensorium.TRACK);
    }
  };
})();
