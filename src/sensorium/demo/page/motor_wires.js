// Wires from the outputs of the agent to the motors: drag an end to another motor, tap a wire to reverse it, pull it off
// to cut it. Beside them the action, and what the agent has found out about its outputs.

import { colour, hue, open } from "./canvas.js";
import { cross, shade } from "./channels.js";
import { buttonRow, focusOn, rove } from "./channel_buttons.js";

const TOP = 8; // px above the first row, where the colours of the sensors are; as in the style sheet
const SLIP = 6; // px that a finger may move while it taps
const NEAR = 16; // px from a wire that still hit it
const PLUGGED = 0.55; // of the way to the motors, from where on a dropped end is connected

export class MotorWires {
  // `onChange` is called with controls that change and a sentence; `redraw` when a wire is being dragged
  constructor(canvas, outputs, motors, onChange, redraw) {
    Object.assign(this, { canvas, outputs, list: motors, onChange, redraw, names: [], dragged: null });
    outputs.addEventListener("keydown", (event) => this.move(event));
    canvas.addEventListener("pointerdown", (event) => this.grab(event));
    canvas.addEventListener("pointermove", (event) => this.drag(event));
    canvas.addEventListener("pointerup", (event) => this.drop(event));
    canvas.addEventListener("pointercancel", () => this.release());
  }

  // Build the rows for another agent; no names where actions are choices
  reset(names) {
    Object.assign(this, { names, dragged: null, now: "" });
    this.canvas.parentElement.style.setProperty("--rows", names.length);
    this.outputs.replaceChildren(...names.map((_, output) => buttonRow(() => {
      focusOn(this.outputs, output);
      this.tap(output);
    })));
    this.list.replaceChildren(...names.map((name, motor) => {
      const row = buttonRow(() => this.cut(this.motors.indexOf(motor)));
      row.firstChild.textContent = name;
      row.firstChild.title = `Cut the wire of ${name}, or connect it again`;
      return row;
    }));
    focusOn(this.outputs, 0);
  }

  // Take over the wires that the controls ask for
  update({ motors, motors_reversed: reversed, motors_cut: cut }) {
    const own = this.names.map((_, output) => output), now = `${motors} ${reversed} ${cut}`;
    Object.assign(this, { motors: motors.length ? motors : own, reversed: new Set(reversed), loose: new Set(cut) });
    if (now === this.now) return;
    this.now = now;
    [...this.outputs.children].forEach(({ firstChild: button }, output) => {
      const turned = this.reversed.has(output), off = this.loose.has(output);
      button.ariaLabel = button.title = `Output ${output + 1}, wired to ${this.names[this.motors[output]]}`
        + (turned ? ", reversed" : "") + (off ? ", cut" : "");
      button.setAttribute("aria-pressed", String(turned));
      this.list.children[this.motors[output]].firstChild.setAttribute("aria-pressed", String(off));
    });
  }

  get changed() {
    return this.now.trim() !== "";
  }

  // What a click does: connect a wire that is cut, reverse any other
  tap(output) {
    if (this.loose.has(output)) return this.cut(output);
    const undo = !flip(this.reversed, output);
    this.change(`The wire of output ${output + 1} ${undo ? "no longer changes the sign" : "is reversed"}.`);
  }

  cut(output) {
    const off = flip(this.loose, output), motor = this.names[this.motors[output]];
    this.change(off ? `The wire from output ${output + 1} to ${motor} is cut.`
      : `Output ${output + 1} is connected to ${motor} again.`);
  }

  // Lead a wire to another motor, and the wire there to where this one was
  connect(output, motor) {
    const other = this.motors.indexOf(motor);
    this.motors = [...this.motors];
    [this.motors[output], this.motors[other]] = [motor, this.motors[output]];
    this.loose.delete(output);
    this.change(`Output ${output + 1} is wired to ${this.names[motor]}`
      + (other === output ? "." : `, output ${other + 1} to ${this.names[this.motors[other]]}.`));
  }

  // Other motors and signs at random
  rewire() {
    const order = this.names.map((_, output) => output);
    for (let last = order.length - 1; last > 0; last--) {
      const other = Math.floor(Math.random() * (last + 1));
      [order[last], order[other]] = [order[other], order[last]];
    }
    this.motors = order;
    this.reversed = new Set(order.filter(() => Math.random() < 0.5));
    this.loose.clear();
    this.change("The motors are rewired at random, with signs.");
  }

  change(sentence) {
    const inOrder = (set) => [...set].sort((one, other) => one - other);
    this.onChange({
      motors: this.motors.every((motor, output) => motor === output) ? [] : this.motors,
      motors_reversed: inOrder(this.reversed), motors_cut: inOrder(this.loose),
    }, sentence);
  }

  // By keyboard: the arrow keys choose an output, with Shift they move its wire; Delete cuts it
  move(event) {
    const output = [...this.outputs.children].findIndex((row) => row.firstChild === event.target);
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (event.shiftKey && step) {
      event.preventDefault();
      const motor = this.motors[output] + step;
      if (motor in this.names) this.connect(output, motor);
    } else if (event.key === "Delete" || event.key === "Backspace") this.cut(output);
    else rove(this.outputs, event);
  }

  // By mouse or finger

  grab(event) {
    const { x, y } = this.at(event), output = this.nearest(x, y);
    if (output < 0 || !event.isPrimary || event.button) return;
    event.preventDefault();
    this.canvas.setPointerCapture(event.pointerId);
    this.dragged = { output, x, y, from: { x, y }, moved: false };
  }

  drag(event) {
    const { x, y } = this.at(event), held = this.dragged;
    this.canvas.style.cursor = held?.moved ? "grabbing" : this.nearest(x, y) >= 0 ? "grab" : "";
    if (!held) return;
    held.moved ||= Math.hypot(x - held.from.x, y - held.from.y) > SLIP;
    Object.assign(held, { x, y });
    this.redraw();
  }

  drop() {
    const held = this.dragged;
    this.release();
    if (!held) return;
    const { output } = held, motor = this.motorAt(held);
    if (!held.moved) this.tap(output);
    else if (motor < 0 && !this.loose.has(output)) this.cut(output);
    else if (motor >= 0 && (motor !== this.motors[output] || this.loose.has(output))) this.connect(output, motor);
  }

  release() {
    this.dragged = null;
    this.redraw();
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  // The motor at which an end would be dropped; -1 in between
  motorAt({ x, y }) {
    const { left, right, high } = this.layout, row = Math.floor((y - TOP) / high);
    return x < left + PLUGGED * (right - left) || !(row in this.names) ? -1 : row;
  }

  // The output whose wire passes a point, at its end whoever ends there; -1 if none is near
  nearest(x, y) {
    const { left, right, high } = this.layout ?? {}, row = Math.floor((y - TOP) / high);
    if (!(x >= left)) return -1;
    if (x > right - 24 && row in this.names) return this.motors.indexOf(row);
    const apart = this.names.map((_, output) => {
      const [from, to] = [output, this.motors[output]].map((place) => TOP + (place + 0.5) * high);
      let least = Infinity;
      for (let t = 0; t <= 1; t += 1 / 32) {
        const across = left + (right - left) * (1.5 * t * (1 - t) + t ** 3);
        const down = from + (to - from) * t * t * (3 - 2 * t);
        least = Math.min(least, Math.hypot(across - x, down - y));
      }
      return least;
    });
    const best = apart.indexOf(Math.min(...apart));
    return apart[best] < NEAR ? best : -1;
  }

  // Draw the wires, the action, and what the agent has found out; `hues` are of the channels of the latter
  draw({ command, action, digest }, hues) {
    const { pen, width, height } = open(this.canvas), count = this.names.length, channels = digest?.shape[1] ?? 0;
    const matrix = Math.min(width * 0.34, 22 * channels), bars = Math.min(64, width * 0.18);
    const left = matrix + (channels ? 10 : 0) + bars, right = width - 9, high = (height - TOP) / count;
    this.layout = { left, right, high };
    const board = this.canvas.closest("section").style;
    board.setProperty("--digest", `${matrix}px`);
    board.setProperty("--outputs", `${left}px`);
    for (let channel = 0; channel < channels; channel++) {
      const cell = matrix / channels;
      pen.fillStyle = hues[channel % hues.length];
      pen.fillRect(channel * cell, 0, cell - 1, 4);
      for (let output = 0; output < count; output++) {
        pen.fillStyle = shade(digest[output * channels + channel]);
        pen.fillRect(channel * cell, TOP + output * high, cell - 1, high - 1);
      }
    }
    pen.lineCap = "round";
    const held = this.dragged?.moved ? this.dragged : null, target = held ? this.motorAt(held) : -1;
    for (let output = 0; output < count; output++) {
      const motor = this.motors[output], y = TOP + (output + 0.5) * high, mine = held?.output === output;
      const swapped = target >= 0 && motor === target && !mine; // gives way to the one that is dragged
      const goal = swapped ? this.motors[held.output] : mine && target >= 0 ? target : motor;
      const end = mine ? held : { x: right - 6, y: TOP + (goal + 0.5) * high };
      const off = this.loose.has(output) && !mine, sent = command ? Math.abs(command[motor]) / 127 : 0;
      pen.strokeStyle = pen.fillStyle = hue(goal, count);
      if (action) {
        const long = (bars / 2 - 4) * action[output] / 127, thick = Math.min(high * 0.5, 14);
        pen.fillRect(left - bars / 2, y - thick / 2, long, thick);
      }
      pen.globalAlpha = off || swapped ? 0.5 : 0.85;
      pen.lineWidth = off ? 1.5 : 2 + 3 * sent;
      pen.setLineDash(off || swapped ? [3, 5] : []);
      const middle = (left + end.x) / 2;
      pen.beginPath();
      pen.moveTo(left + 3, y);
      pen.bezierCurveTo(middle, y, middle, end.y, end.x, end.y);
      pen.stroke();
      pen.setLineDash([]);
      pen.globalAlpha = 1;
      if (off) cross(pen, end.x, end.y, 5);
      else {
        pen.beginPath();
        pen.arc(end.x, end.y, mine ? 9 : 6, 0, 7);
        pen.fill();
      }
      if (this.reversed.has(output)) minus(pen, left + 0.342 * (end.x - left), y + 0.216 * (end.y - y));
    }
    pen.fillStyle = colour("line");
    pen.fillRect(left - bars / 2 - 0.5, TOP, 1, height - TOP);
  }
}

// The sign of a wire that is reversed
function minus(pen, x, y) {
  pen.lineWidth = 1.5;
  pen.fillStyle = colour("card");
  pen.beginPath();
  pen.arc(x, y, 7, 0, 7);
  pen.fill();
  pen.stroke();
  pen.fillStyle = colour("ink");
  pen.fillRect(x - 3.5, y - 1, 7, 2);
}

// Put something into a set or take it out; whether it is there now
function flip(set, each) {
  if (set.delete(each)) return false;
  set.add(each);
  return true;
}
