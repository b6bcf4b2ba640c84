// Draw worlds from their poses: a cart with its pole, an ant of sticks, a car on its road, bodies with motors.

import { colour, hue, open } from "./canvas.js";

const TRACK = 2.4, POLE = 0.6; // m
const CLOSE = { thrusters: 0.3, arm: 0.1 }; // m from the target
const JET = 0.7; // m a newton

export function cartpole(canvas, pose, action, baseline) {
  const { pen, width, height } = open(canvas);
  const scale = Math.min(width / (2 * TRACK + 0.9), height / 1.75);
  const middle = width / 2, ground = height * 0.56;
  const [position, angle] = pose;
  const x = middle + position * scale;
  pen.lineCap = pen.lineJoin = "round";
  pen.strokeStyle = colour("line");
  pen.lineWidth = 2;
  pen.beginPath();
  const rail = ground + 0.125 * scale;
  pen.moveTo(middle - TRACK * scale, rail);
  pen.lineTo(middle + TRACK * scale, rail);
  for (const side of [-1, 1]) {
    pen.moveTo(middle + side * TRACK * scale, rail - 9);
    pen.lineTo(middle + side * TRACK * scale, rail + 9);
  }
  pen.stroke();
  pen.globalAlpha = baseline ? 0.75 : 1;
  pen.fillStyle = colour(baseline ? "baseline" : "cart");
  pen.beginPath();
  pen.roundRect(x - 0.21 * scale, ground - 0.095 * scale, 0.42 * scale, 0.19 * scale, 0.05 * scale);
  pen.fill();
  if (Math.abs(action) > 0.03) arrow(pen, x, rail + 0.14 * scale, action * 0.5 * scale);
  pen.strokeStyle = colour(baseline ? "baseline" : "pole");
  pen.lineWidth = Math.max(4, 0.065 * scale);
  pen.beginPath();
  pen.moveTo(x, ground);
  const tipX = x - POLE * scale * Math.sin(angle), tipY = ground - POLE * scale * Math.cos(angle);
  pen.lineTo(tipX, tipY);
  pen.stroke();
  pen.fillStyle = pen.strokeStyle;
  pen.beginPath();
  pen.arc(tipX, tipY, Math.max(5, 0.062 * scale), 0, 7);
  pen.fill();
  pen.fillStyle = colour("card");
  pen.beginPath();
  pen.arc(x, ground, Math.max(2, 0.022 * scale), 0, 7);
  pen.fill();
  pen.globalAlpha = 1;
}

function arrow(pen, x, y, length) {
  const tip = x + length, head = Math.sign(length) * Math.min(6, Math.abs(length));
  pen.lineWidth = 2.5;
  pen.strokeStyle = pen.fillStyle;
  pen.beginPath();
  pen.moveTo(x, y);
  pen.lineTo(tip, y);
  pen.moveTo(tip - head, y - 4);
  pen.lineTo(tip, y);
  pen.lineTo(tip - head, y + 4);
  pen.stroke();
}

// From the side and above; the camera follows the torso
export function ant(canvas, points, baseline) {
  const { pen, width, height } = open(canvas);
  if (!points.length) return;
  const scale = Math.min(width / 6.2, height / 2.5);
  const centre = [points[0], points[1]];
  const place = (x, y, z) => [
    width / 2 + (x - centre[0]) * scale - (y - centre[1]) * 0.42 * scale,
    height * 0.72 - (y - centre[1]) * 0.36 * scale - z * 0.92 * scale,
  ];
  pen.lineCap = pen.lineJoin = "round";
  pen.lineWidth = 1;
  pen.strokeStyle = colour("line");
  pen.fillStyle = colour("soft");
  pen.font = "11px system-ui, sans-serif";
  pen.textAlign = "center";
  const reach = 6;
  for (let i = Math.floor(centre[0] - reach); i <= centre[0] + reach; i++) {
    pen.beginPath();
    pen.moveTo(...place(i, centre[1] - 3, 0));
    pen.lineTo(...place(i, centre[1] + 4, 0));
    pen.stroke();
    const [x] = place(i, centre[1] - 1.5, 0);
    if (i % 2 === 0) pen.fillText(`${i} m`, x, height - 6);
  }
  for (let j = Math.floor(centre[1] - 3); j <= centre[1] + 4; j++) {
    pen.beginPath();
    pen.moveTo(...place(centre[0] - reach, j, 0));
    pen.lineTo(...place(centre[0] + reach, j, 0));
    pen.stroke();
  }
  const at = (n) => [points[3 * n], points[3 * n + 1], points[3 * n + 2]];
  const shadow = (n, size) => {
    const [x, y] = at(n), [px, py] = place(x, y, 0);
    pen.beginPath();
    pen.ellipse(px, py, size * scale, size * 0.4 * scale, 0, 0, 7);
    pen.fill();
  };
  pen.globalAlpha = 0.13;
  pen.fillStyle = colour("ink");
  shadow(0, 0.34);
  for (const leg of [0, 1, 2, 3]) [2, 3].forEach((joint) => shadow(3 * leg + joint, 0.12));
  pen.globalAlpha = baseline ? 0.75 : 1;
  const strokes = [];
  for (let leg = 0; leg < 4; leg++) {
    const chain = [at(0), at(3 * leg + 1), at(3 * leg + 2), at(3 * leg + 3)];
    for (let part = 0; part < 3; part++) strokes.push([chain[part], chain[part + 1], part]);
  }
  strokes.push([at(0), at(0), -1]);
  strokes.sort((one, other) => other[0][1] + other[1][1] - one[0][1] - one[1][1]); // far ones first
  for (const [from, to, part] of strokes) {
    if (part < 0) {
      pen.fillStyle = colour(baseline ? "baseline" : "cart");
      pen.beginPath();
      pen.arc(...place(...from), 0.25 * scale, 0, 7);
      pen.fill();
      continue;
    }
    pen.strokeStyle = colour(baseline ? "baseline" : part === 2 ? "pole" : "cart");
    pen.lineWidth = (part === 2 ? 0.13 : 0.15) * scale;
    pen.beginPath();
    pen.moveTo(...place(...from));
    pen.lineTo(...place(...to));
    pen.stroke();
  }
  pen.globalAlpha = 1;
}

// A road from above, the car upright
export function road(canvas, pose, line) {
  const { pen, width, height } = open(canvas);
  const [x, y, angle, steering] = pose;
  const scale = height / 75;
  pen.save();
  pen.translate(width / 2, height * 0.72);
  pen.scale(scale, -scale);
  pen.rotate(-angle);
  pen.translate(-x, -y);
  lay(pen, line, 14, 12.6);
  pen.restore();
  pen.save();
  pen.translate(width / 2, height * 0.72);
  const box = (dx, dy, w, h, turn, fill) => {
    pen.save();
    pen.translate(dx * scale, -dy * scale);
    pen.rotate(-turn);
    pen.fillStyle = fill;
    pen.beginPath();
    pen.roundRect(-w / 2 * scale, -h / 2 * scale, w * scale, h * scale, 0.3 * scale);
    pen.fill();
    pen.restore();
  };
  for (const side of [-1.1, 1.1]) {
    box(side, 1.6, 0.6, 1.2, steering, colour("ink"));
    box(side, -1.6, 0.6, 1.2, 0, colour("ink"));
  }
  box(0, 0, 1.7, 4.6, 0, colour("pole"));
  pen.restore();
}

// The whole road from above with both cars
export function map(canvas, line, pose, baseline) {
  const { pen, width, height } = open(canvas);
  if (!line.length) return;
  const [left, right] = ends(line.map(([x]) => x)), [low, high] = ends(line.map(([, y]) => y));
  const scale = Math.min(width / (right - left), height / (high - low));
  const place = (x, y) => [
    width / 2 + (x - (left + right) / 2) * scale, height / 2 - (y - (low + high) / 2) * scale,
  ];
  pen.save();
  pen.translate(...place(0, 0));
  pen.scale(scale, -scale);
  lay(pen, line, 9 / scale, 6 / scale);
  pen.restore();
  for (const [name, [x, y, angle]] of [["pole", pose], ["baseline", baseline]]) {
    const [across, down] = place(x, y);
    pen.save();
    pen.translate(Math.min(Math.max(across, 8), width - 8), Math.min(Math.max(down, 8), height - 8));
    pen.rotate(-angle);
    pen.fillStyle = colour(name);
    pen.beginPath();
    for (const [dx, dy] of [[0, -8], [5.5, 6], [0, 3], [-5.5, 6]]) pen.lineTo(dx, dy);
    pen.closePath();
    pen.fill();
    pen.restore();
  }
}

// Draw a road, in metres
function lay(pen, line, wide, inner) {
  pen.lineJoin = "round";
  for (const [name, width] of [["line", wide], ["faint", inner]]) {
    pen.strokeStyle = colour(name);
    pen.lineWidth = width;
    pen.beginPath();
    line.forEach((point, index) => (index ? pen.lineTo(...point) : pen.moveTo(...point)));
    pen.closePath();
    pen.stroke();
  }
}

// The smallest and the largest, with a margin
function ends(values) {
  return [Math.min(...values) - 25, Math.max(...values) + 25];
}

// A body from above, with a jet behind each motor that is connected, as long as it pushes
export function thrusters(canvas, pose, baseline) {
  const { pen, width, height } = open(canvas);
  const [x, y, angle, ...rest] = pose, count = (pose.length - 5) / 5;
  const reach = Math.max(2.8, Math.abs(x) + 1.3, Math.abs(y) + 1.3);
  ground(pen, width, height, reach);
  target(pen, rest, CLOSE.thrusters);
  pen.translate(x, y);
  pen.rotate(angle);
  pen.globalAlpha = baseline ? 0.75 : 1;
  for (let motor = 0; motor < count; motor++) {
    const [atX, atY, forceX, forceY, thrust] = pose.subarray(5 + 5 * motor, 10 + 5 * motor);
    const size = Math.hypot(forceX, forceY), wide = 0.1;
    if (!size) continue;
    pen.strokeStyle = colour("soft");
    pen.lineWidth = 0.05;
    line(pen, [0, 0], [atX, atY]);
    pen.fillStyle = hue(motor, count);
    pen.beginPath(); // as wide as a motor at its nozzle, and less at the far end
    for (const [side, far] of [[1, 0], [0.35, 1], [-0.35, 1], [-1, 0]]) {
      const back = far * JET * thrust;
      pen.lineTo(atX - forceX * back - side * wide * forceY / size, atY - forceY * back + side * wide * forceX / size);
    }
    pen.fill();
    dot(pen, atX, atY, wide);
  }
  pen.fillStyle = colour(baseline ? "baseline" : "cart");
  dot(pen, 0, 0, 0.24);
  pen.restore();
}

// An arm; at each joint, in the colour of the motor that turns it, how fast it turns
export function arm(canvas, pose, command, baseline) {
  const { pen, width, height } = open(canvas), count = (pose.length - 2) / 4;
  ground(pen, width, height, 2.2);
  target(pen, pose, CLOSE.arm);
  pen.globalAlpha = baseline ? 0.75 : 1;
  let before = [0, 0];
  const joints = [];
  pen.fillStyle = colour("soft");
  dot(pen, 0, 0, 0.13);
  pen.strokeStyle = colour(baseline ? "baseline" : "cart");
  pen.lineWidth = 0.1;
  for (let joint = 0; joint < count; joint++) {
    const [x, y, motor, gain] = pose.subarray(2 + 4 * joint, 6 + 4 * joint);
    if (x === before[0] && y === before[1]) break; // a link that is not there
    line(pen, before, [x, y]);
    joints.push({ at: before, bearing: Math.atan2(y - before[1], x - before[0]), motor, gain });
    before = [x, y];
  }
  for (const { at, bearing, motor, gain } of joints) {
    pen.fillStyle = pen.strokeStyle = hue(motor, count);
    dot(pen, ...at, 0.055);
    const turn = command ? 1.2 * gain * command[motor] / 127 : 0;
    pen.lineWidth = 0.05;
    pen.beginPath();
    pen.arc(...at, 0.17, bearing, bearing + turn, turn < 0);
    pen.stroke();
  }
  pen.fillStyle = colour("pole");
  dot(pen, ...before, 0.08);
  pen.restore();
}

// Begin a view from above, in metres, with a line every metre
function ground(pen, width, height, reach) {
  const scale = Math.min(width, height) / 2 / reach, far = Math.ceil(Math.max(width, height) / 2 / scale);
  pen.save();
  pen.translate(width / 2, height / 2);
  pen.scale(scale, -scale);
  pen.lineCap = "round";
  pen.lineWidth = 1 / scale;
  pen.strokeStyle = colour("faint");
  for (let metre = -far; metre <= far; metre++) {
    line(pen, [metre, -far], [metre, far]);
    line(pen, [-far, metre], [far, metre]);
  }
}

function target(pen, [x, y], close) {
  pen.strokeStyle = pen.fillStyle = colour("s2");
  pen.lineWidth = 0.04;
  pen.beginPath();
  pen.arc(x, y, close, 0, 7);
  pen.stroke();
  dot(pen, x, y, 0.04);
}

function line(pen, from, to) {
  pen.beginPath();
  pen.moveTo(...from);
  pen.lineTo(...to);
  pen.stroke();
}

function dot(pen, x, y, radius) {
  pen.beginPath();
  pen.arc(x, y, radius, 0, 7);
  pen.fill();
}
