// Draw which sensor arrives at which input, readings, attention, and the code over time.

import { channels, colour, hue, onNewColours, open } from "./canvas.js";

const NOISE = -1;

export function drawChannels(canvas, frame, sensors, silent) {
  const { pen, width, height } = open(canvas);
  const { source, channel, level, attention } = frame;
  if (!source) return;
  const inputs = source.length, queries = attention ? attention.shape[1] : 0;
  const matrix = queries ? Math.min(width * 0.36, 190) : 0, bars = Math.min(72, width * 0.18);
  const lines = width - matrix - bars - (queries ? 16 : 8);
  const board = canvas.parentElement.parentElement.style;
  board.setProperty("--matrix", `${matrix}px`);
  board.setProperty("--inputs", `${width - lines}px`);
  const noisy = source.some((each) => each === NOISE);
  const rows = sensors.length + (noisy ? 1 : 0);
  const left = (sensor) => ((sensor === NOISE ? sensors.length : sensor) + 0.5) * height / rows;
  const high = height / inputs, share = shareOfAttention(attention, inputs, queries);
  pen.lineCap = "round";
  for (let input = 0; input < inputs; input++) {
    const sensor = source[input], y = (input + 0.5) * high, zero = silent.includes(channel[input]);
    const hueNow = sensor === NOISE ? colour("noise") : hue(sensor, sensors.length);
    pen.strokeStyle = hueNow;
    pen.globalAlpha = zero ? 0.5 : 0.22 + 0.75 * share[input];
    pen.lineWidth = zero ? 1 : 0.8 + 3.4 * share[input] * Math.min(1, high / 12 + 0.25);
    pen.setLineDash(zero ? [3, 5] : []);
    pen.beginPath();
    pen.moveTo(2, left(sensor));
    pen.bezierCurveTo(lines * 0.5, left(sensor), lines * 0.5, y, lines - 4, y);
    pen.stroke();
    pen.setLineDash([]);
    if (zero) cross(pen, lines - 4, y, Math.max(1.5, Math.min(4, high / 3)));
    pen.globalAlpha = zero ? 0.3 : 1;
    if (level) {
      pen.fillStyle = hueNow;
      const long = (bars / 2 - 4) * level[input] / 127, thick = Math.max(1, Math.min(high * 0.55, 14));
      pen.fillRect(lines + bars / 2, y - thick / 2, long, thick);
    }
  }
  pen.globalAlpha = 1;
  pen.fillStyle = colour("line");
  pen.fillRect(lines + bars / 2 - 0.5, 0, 1, height);
  if (queries) {
    const start = width - matrix, cell = matrix / queries, gap = high > 5 ? 1 : 0;
    for (let input = 0; input < inputs; input++) {
      for (let query = 0; query < queries; query++) {
        pen.fillStyle = shade(attention[input * queries + query]);
        pen.fillRect(start + query * cell, input * high + gap / 2, cell - (cell > 4 ? 0.6 : 0), high - gap);
      }
    }
  }
}

export function cross(pen, x, y, size) {
  pen.globalAlpha = 1;
  pen.strokeStyle = colour("wrong");
  pen.lineWidth = 1.5;
  pen.beginPath();
  for (const slope of [-1, 1]) {
    pen.moveTo(x - size, y - slope * size);
    pen.lineTo(x + size, y + slope * size);
  }
  pen.stroke();
}

// Mean absolute attention to each input, relative to the largest
function shareOfAttention(attention, inputs, queries) {
  if (!queries) return new Array(inputs).fill(0.5);
  const means = [];
  for (let input = 0; input < inputs; input++) {
    let sum = 0;
    for (let query = 0; query < queries; query++) sum += Math.abs(attention[input * queries + query]);
    means.push(sum);
  }
  const most = Math.max(...means, 1);
  return means.map((mean) => mean / most);
}

let shades = null;
onNewColours(() => { shades = null; });

// The colour of a number from -127 to 127: from blue through none to orange
export function shade(value) {
  if (!shades) {
    const zero = channels("zero"), ends = { minus: channels("minus"), plus: channels("plus") };
    shades = Array.from({ length: 256 }, (_, index) => {
      const share = (index - 127) / 127, end = ends[share < 0 ? "minus" : "plus"];
      const part = Math.min(1, Math.abs(share));
      return `rgb(${zero.map((from, k) => Math.round(from + (end[k] - from) * part)).join(" ")})`;
    });
  }
  return shades[value + 127];
}

// The code of the last steps, the newest on the right; a tick where the order of inputs changed
export class CodeHistory {
  constructor(canvas) {
    this.canvas = canvas;
    this.clear();
    onNewColours(() => this.draw());
  }

  clear() {
    this.columns = [];
  }

  add(code, changed) {
    this.columns.push({ code: Int8Array.from(code), changed });
    if (this.columns.length > 400) this.columns.splice(0, this.columns.length - 400);
  }

  draw() {
    const { pen, width, height } = open(this.canvas);
    const step = 2, shown = Math.min(this.columns.length, Math.floor(width / step));
    if (!shown) return;
    const columns = this.columns.slice(-shown), rows = columns.at(-1).code.length;
    const strip = this.strip(columns, rows);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(strip, 0, 0, shown, rows, width - shown * step, 0, shown * step, height);
    pen.fillStyle = colour("ink");
    columns.forEach(({ changed }, index) => {
      if (changed) pen.fillRect(width - (shown - index) * step, 0, 1.5, height);
    });
  }

  strip(columns, rows) {
    const strip = this.offscreen ??= document.createElement("canvas");
    strip.width = columns.length;
    strip.height = rows;
    const pen = strip.getContext("2d"), image = pen.createImageData(columns.length, rows);
    const zero = channels("zero"), minus = channels("minus"), plus = channels("plus");
    columns.forEach(({ code }, x) => {
      if (code.length !== rows) return;
      for (let y = 0; y < rows; y++) {
        const share = code[y] / 127, end = share < 0 ? minus : plus, part = Math.abs(share);
        const at = 4 * (y * columns.length + x);
        for (let k = 0; k < 3; k++) image.data[at + k] = zero[k] + (end[k] - zero[k]) * part;
        image.data[at + 3] = 255;
      }
    });
    pen.putImageData(image, 0, 0);
    return strip;
  }
}
