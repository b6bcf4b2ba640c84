// Buttons for sensors on the left and for inputs of the agent on the right. Each silences channels, or undoes that.

import { hue, onNewColours } from "./canvas.js";

const NOISE = -1;
const DELAY = 150; // ms: orders may change at every step, and names need not be written that often

export class ChannelButtons {
  // `onSilence` is called with the channels that are to read zero from now on, and with a sentence about it
  constructor(sensors, inputs, onSilence) {
    Object.assign(this, { list: sensors, inputs, onSilence, names: [], channel: [], silent: new Set(), waiting: 0 });
    inputs.addEventListener("keydown", (event) => rove(inputs, event));
    onNewColours(() => this.colour());
  }

  // Build the buttons for another agent; null where the world shows images
  reset(sensors, firstNoise) {
    Object.assign(this, { names: sensors ?? [], firstNoise, channel: [], now: "", done: "" });
    this.list.classList.toggle("many", this.names.length > 14);
    this.inputs.replaceChildren();
    this.list.replaceChildren(...this.names.map((_, sensor) => this.sensorRow(sensor)));
    this.noise = this.sensorRow(NOISE);
    this.noise.className = "noise";
    this.colour();
  }

  colour() {
    this.names.forEach((_, index) => {
      this.list.children[index].firstChild.style.setProperty("--hue", hue(index, this.names.length));
    });
  }

  // A button for all channels of a sensor, or of noise
  sensorRow(index) {
    const name = this.nameOf(index), row = buttonRow(() => this.toggle(this.channelsOf(index), name));
    row.firstChild.textContent = name;
    row.firstChild.title = `Silence ${name}, or undo that`;
    return row;
  }

  // A button for the channel at one input
  inputRow() {
    const row = buttonRow(() => {
      const input = [...this.inputs.children].indexOf(row), channel = this.channel[input];
      focusOn(this.inputs, input);
      this.toggle([channel], this.nameOfChannel(channel));
    });
    row.firstChild.tabIndex = -1;
    return row;
  }

  // Show which channel is at which input, and which are silent
  show(channel, silent) {
    const now = `${channel} ${silent}`, done = `${channel.length} ${silent}`;
    if (!this.names.length || now === this.now) return;
    const later = done === this.done; // only the order has changed
    Object.assign(this, { channel, now, done, silent: new Set(silent) });
    if (later) this.waiting ||= setTimeout(() => this.write(), DELAY);
    else this.write();
  }

  write() {
    clearTimeout(this.waiting);
    this.waiting = 0;
    const noisy = this.channel.some((channel) => channel >= this.firstNoise);
    if (!noisy) this.noise.remove();
    else if (!this.noise.isConnected) this.list.append(this.noise);
    [...this.list.children].forEach((row, index) => {
      const channels = this.channelsOf(row === this.noise ? NOISE : index);
      const silent = channels.filter((channel) => this.silent.has(channel)).length;
      const pressed = silent === 0 ? "false" : silent === channels.length ? "true" : "mixed";
      row.firstChild.setAttribute("aria-pressed", pressed);
    });
    this.inputs.parentElement.style.setProperty("--rows", this.channel.length);
    while (this.inputs.children.length > this.channel.length) this.inputs.lastChild.remove();
    while (this.inputs.children.length < this.channel.length) this.inputs.append(this.inputRow());
    [...this.inputs.children].forEach((row, input) => {
      const button = row.firstChild, channel = this.channel[input];
      const label = `Input ${input + 1}: ${this.nameOfChannel(channel)}`;
      if (button.ariaLabel !== label) button.ariaLabel = button.title = label;
      button.setAttribute("aria-pressed", String(this.silent.has(channel)));
    });
    if (!this.inputs.querySelector("[tabindex='0']")) focusOn(this.inputs, 0);
  }

  toggle(channels, name) {
    if (!channels.length) return;
    const undo = channels.every((channel) => this.silent.has(channel));
    for (const channel of channels) undo ? this.silent.delete(channel) : this.silent.add(channel);
    const silent = [...this.silent].sort((one, other) => one - other);
    this.onSilence(silent, `${name} ${undo ? "is no longer silenced" : "is silenced: it reads zero"}.`);
  }

  channelsOf(index) {
    return [...this.channel].filter((channel) => this.sensorOf(channel) === index);
  }

  sensorOf(channel) {
    return channel >= this.firstNoise ? NOISE : channel % this.names.length;
  }

  nameOf(index) {
    return index === NOISE ? "noise" : this.names[index];
  }

  nameOfChannel(channel) {
    if (channel >= this.firstNoise) return `noise ${channel - this.firstNoise + 1}`;
    const copy = Math.floor(channel / this.names.length);
    return this.nameOf(this.sensorOf(channel)) + (copy ? `, copy ${copy + 1}` : "");
  }
}

// One row of a list at a time can be reached by Tab, the others by the arrow keys
export function focusOn(list, row) {
  [...list.children].forEach((each, index) => { each.firstChild.tabIndex = index === row ? 0 : -1; });
}

export function rove(list, event) {
  const now = [...list.children].findIndex((row) => row.firstChild === event.target);
  const last = list.children.length - 1;
  const next = { ArrowUp: now - 1, ArrowDown: now + 1, Home: 0, End: last }[event.key];
  if (next === undefined || next < 0 || next > last) return;
  event.preventDefault();
  focusOn(list, next);
  list.children[next].firstChild.focus();
}

export function buttonRow(click) {
  const row = document.createElement("li"), button = document.createElement("button");
  button.type = "button";
  button.addEventListener("click", click);
  row.append(button);
  return row;
}
