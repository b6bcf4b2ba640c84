// Buttons, keys and the clock.
"use strict";

(() => {
  const $ = (id) => document.getElementById(id);
  const session = new Sensorium.Session(Sensorium.weights, Object.keys(Sensorium.weights.agents)[0]);
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const KEPT = 1200; // steps of the code, more than any screen shows
  let running = !still, owed = 0, last = 0, rest = 0;
  let history = [], marks = [];
  Sensorium.page = { session };

  const say = (text) => { $("status").textContent = text; };
  const count = (number, thing) => `${number} ${thing}${number === 1 ? "" : "s"}`;

  const step = () => {
    const before = session.worlds.map((world) => world.over);
    if (session.step()) marks.push(session.time - 1);
    history.push(session.agent.code);
    if (history.length > KEPT) history = history.slice(-KEPT);
    marks = marks.filter((mark) => mark > session.time - KEPT);
    session.worlds.forEach((world, i) => {
      if (world.over && !before[i]) {
        say(`${i ? session.weights.baseline.name : session.name} left the track at step ${world.time}.`);
      }
    });
  };

  const draw = () => {
    const [mine, other] = session.worlds;
    const style = getComputedStyle(document.documentElement);
    Sensorium.drawCart($("world"), mine, session.action, style.getPropertyValue("--accent"));
    Sensorium.drawCart($("baseline"), other, 0, style.getPropertyValue("--other"));
    Sensorium.drawInputs($("inputs"), session);
    Sensorium.drawCode($("code"), history, marks, session.time);
    $("return").value = Math.round(mine.total);
    $("baselinereturn").value = Math.round(other.total);
  };

  const reset = (seed) => {
    $("seed").value = seed;
    session.reset(seed);
    history = [];
    marks = [];
    owed = rest = 0;
    draw();
  };

  const shuffle = () => {
    session.shuffle();
    marks.push(session.time);
    say(`Shuffled at step ${session.time}.`);
    draw();
  };

  const pause = (stop) => {
    running = !stop;
    $("pause").firstChild.textContent = running ? "Pause " : "Resume ";
  };

  const channels = (change) => {
    session.setChannels(change);
    marks.push(session.time);
    $("noise").value = $("noisecount").value = session.noise;
    $("copies").value = session.copies;
    say(`${count(session.sensorOfChannel.length, "channel")}, of which ${session.noise} noise.`);
    draw();
  };

  const preset = (noise) => {
    session.noise = noise;
    session.copies = 1;
    session.rewire();
    reset(Number($("seed").value));
    session.shuffle();
    channels({});
    pause(false);
  };

  const commands = {
    shuffle,
    pause: () => pause(running),
    step: () => { pause(true); step(); draw(); },
    push: () => {
      const blow = session.push();
      say(`Pushed both carts to the ${blow > 0 ? "right" : "left"} at step ${session.time}.`);
      draw();
    },
    reset: () => {
      const most = Number($("seed").max);
      reset(Math.min(most, Math.max(0, Math.floor(Number($("seed").value) || 0))));
      say(`A new start, seed ${session.seed}.`);
    },
    five: () => preset(0),
    fifteen: () => preset(10),
  };
  for (const [id, command] of Object.entries(commands)) $(id).addEventListener("click", command);

  const keys = { s: "shuffle", " ": "pause", ArrowRight: "step", p: "push", r: "reset" };
  document.addEventListener("keydown", (event) => {
    const busy = event.target.closest("input, select") || event.ctrlKey || event.metaKey || event.altKey;
    const command = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    // The space bar presses the button that has the focus
    if (busy || !command || (event.key === " " && event.target.closest("button"))) return;
    event.preventDefault();
    commands[command]();
  });

  $("every").addEventListener("change", (event) => { session.every = Number(event.target.value); });
  $("noise").addEventListener("input", (event) => channels({ noise: Number(event.target.value) }));
  $("copies").addEventListener("change", (event) => channels({ copies: Number(event.target.value) }));
  $("agent").addEventListener("change", (event) => {
    session.name = event.target.value;
    reset(session.seed);
    say(`${session.name} drives, from the same start.`);
  });
  window.addEventListener("resize", draw);

  const tick = (now) => {
    const passed = Math.min(0.1, (now - last) / 1000);
    last = now;
    if (running && session.over) {
      rest += passed;
      if (rest > 2) reset(session.seed + 1);
    } else if (running) {
      owed += (passed * Number($("speed").value)) / Sensorium.TIME_STEP;
      for (; owed >= 1 && !session.over; owed -= 1) step();
      draw();
    }
    requestAnimationFrame(tick);
  };

  for (const name of Object.keys(Sensorium.weights.agents)) $("agent").add(new Option(name));
  $("baselinename").textContent = session.weights.baseline.name;
  pause(still);
  if (still) say("Paused, as your system asks for less motion; Go on starts it.");
  draw();
  requestAnimationFrame((now) => { last = now; tick(now); });
})();
