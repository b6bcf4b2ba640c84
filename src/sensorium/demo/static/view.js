// Draw carts, inputs and code, in the colours of style.css.
"use strict";
var Sensorium = Sensorium || {};

(() => {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  let colours = {};
  const readColours = () => {
    for (const name of ["ink", "soft", "line", "accent", "other", "pole", "noise", "up", "down", "card",
      "s0", "s1", "s2", "s3", "s4"]) colours[name] = colour(`--${name}`);
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", readColours);
  const ofSensor = (sensor) => (sensor < 0 ? colours.noise : colours[`s${sensor}`]);

  // A canvas as sharp as the screen; returns its context and its size in CSS pixels
  const prepare = (canvas) => {
    if (!colours.ink) readColours();
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = canvas;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.lineCap = "round";
    context.font = "12px system-ui, sans-serif";
    return { context, width, height };
  };

  const line = (context, from, to, width, style) => {
    context.beginPath();
    context.moveTo(...from);
    context.lineTo(...to);
    context.lineWidth = width;
    context.strokeStyle = style;
    context.stroke();
  };

  Sensorium.drawCart = (canvas, world, action, body) => {
    const { context, width, height } = prepare(canvas);
    const [position, , angle] = world.state;
    const scale = Math.min(width / 5.4, (height - 24) / 1.45);
    const middle = width / 2, ground = height / 2 + 6;
    const x = middle + Math.max(-2.65, Math.min(2.65, position)) * scale;
    const end = Sensorium.TRACK * scale;
    line(context, [middle - end, ground], [middle + end, ground], 2, colours.line);
    for (const side of [-end, end]) {
      line(context, [middle + side, ground - 7], [middle + side, ground + 7], 2, colours.soft);
    }
    const [wide, high] = [0.34 * scale, 0.17 * scale];
    context.globalAlpha = world.over ? 0.35 : 1;
    if (!world.over && action) {
      line(context, [x, ground + high * 1.25], [x + action * 0.8 * scale, ground + high * 1.25], 4, colours.soft);
    }
    context.fillStyle = body;
    context.beginPath();
    context.roundRect(x - wide / 2, ground - high / 2, wide, high, 5);
    context.fill();
    // The angle is positive counter-clockwise
    const length = Sensorium.POLE_LENGTH * scale;
    const tip = [x - Math.sin(angle) * length, ground - Math.cos(angle) * length];
    line(context, [x, ground], tip, Math.max(4, 0.045 * scale), colours.pole);
    context.fillStyle = colours.ink;
    context.beginPath();
    context.arc(x, ground, Math.max(3, 0.03 * scale), 0, 7);
    context.fill();
    context.globalAlpha = 1;
    if (world.over) {
      context.fillStyle = colours.soft;
      context.textAlign = "center";
      context.fillText(`left the track at step ${world.time}`, middle, 14);
    }
  };

  // Sensors on the left, inputs on the right; beside each the attention to it, query by query, and its reading
  Sensorium.drawInputs = (canvas, session) => {
    const { context, width, height } = prepare(canvas);
    const { sensorOfChannel, noise } = session;
    const means = session.meanAttention(), most = Math.max(1e-6, ...means);
    const rows = Sensorium.SENSORS.length + (noise > 0 ? 1 : 0);
    const left = 118, strip = Math.min(80, width / 6), right = width - strip - 66;
    const source = (sensor) => {
      const row = sensor < 0 ? rows - 1 : sensor;
      return 16 + ((row + 0.5) * (height - 32)) / rows;
    };
    const input = (i) => 16 + ((i + 0.5) * (height - 32)) / sensorOfChannel.length;
    const thick = Math.min(9, Math.max(2.5, 150 / sensorOfChannel.length));
    // Noise first, so that it hides nothing
    const order = sensorOfChannel.map((_, i) => i).sort((a, b) => (sensorOfChannel[a] < 0 ? -1 : 1) - (sensorOfChannel[b] < 0 ? -1 : 1));
    for (const i of order) {
      const share = means[i] / most;
      context.globalAlpha = 0.25 + 0.75 * share;
      context.lineWidth = 0.75 + thick * share;
      context.strokeStyle = ofSensor(sensorOfChannel[i]);
      context.beginPath();
      context.moveTo(left, source(sensorOfChannel[i]));
      const bend = (right - left) * 0.45;
      context.bezierCurveTo(left + bend, source(sensorOfChannel[i]), right - bend, input(i), right, input(i));
      context.stroke();
    }
    context.globalAlpha = 1;
    context.textBaseline = "middle";
    context.textAlign = "right";
    const names = Sensorium.SENSORS.concat(noise > 0 ? [`noise × ${noise}`] : []);
    names.forEach((name, row) => {
      const sensor = row < Sensorium.SENSORS.length ? row : -1;
      context.fillStyle = ofSensor(sensor);
      context.beginPath();
      context.arc(left, source(sensor), 5, 0, 7);
      context.fill();
      context.fillStyle = colours.ink;
      context.fillText(name, left - 12, source(sensor));
    });
    const size = Math.min(5, 130 / sensorOfChannel.length), zero = width - 28;
    const tall = Math.max(2, Math.min(14, ((height - 32) / sensorOfChannel.length) * 0.7));
    line(context, [zero, 12], [zero, height - 12], 1, colours.line);
    sensorOfChannel.forEach((sensor, i) => {
      const y = input(i);
      context.fillStyle = ofSensor(sensor);
      context.beginPath();
      context.arc(right, y, size, 0, 7);
      context.fill();
      const reading = 26 * Math.tanh(session.observations[0][i] / 3);
      line(context, [zero, y], [zero + reading, y], Math.max(1.5, size), ofSensor(sensor));
      const attention = session.agent.attention[i] || [];
      attention.forEach((value, query) => {
        context.globalAlpha = Math.min(1, Math.abs(value));
        context.fillStyle = value > 0 ? colours.up : colours.down;
        const from = Math.round((query * strip) / attention.length);
        const to = Math.round(((query + 1) * strip) / attention.length);
        context.fillRect(right + 10 + from, y - tall / 2, to - from, tall);
      });
      context.globalAlpha = 1;
    });
    context.fillStyle = colours.soft;
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "left";
    context.fillText("attention", right + 10, 6);
    context.textAlign = "right";
    context.fillText("reading", width, 6);
    context.textBaseline = "alphabetic";
    canvas.setAttribute("aria-label", `Inputs in order: ${
      sensorOfChannel.slice(0, 20).map((sensor) => Sensorium.SENSORS[sensor] || "noise").join(", ")}${
      sensorOfChannel.length > 20 ? ` and ${sensorOfChannel.length - 20} more` : ""}`);
  };

  // One column a step, one row a number of the code; marks are steps at which the order changed
  Sensorium.drawCode = (canvas, history, marks, now) => {
    const { context, width, height } = prepare(canvas);
    if (!history.length) return;
    const rows = history[0].length, step = 2, shown = Math.floor(width / step);
    const recent = history.slice(-shown), tall = height / rows;
    recent.forEach((code, column) => {
      code.forEach((value, row) => {
        context.globalAlpha = Math.min(1, Math.abs(value));
        context.fillStyle = value > 0 ? colours.up : colours.down;
        const top = Math.round(row * tall);
        context.fillRect(column * step, top, step, Math.round((row + 1) * tall) - top);
      });
    });
    context.globalAlpha = 1;
    for (const mark of marks) {
      const column = recent.length - (now - mark);
      if (column >= 0) line(context, [column * step, 0], [column * step, height], 2, colours.ink);
    }
  };
})();
