// The buttons beside the wires: sensors on the left, places on the right. Each cuts wires, or mends them.

import { hue, onNewColours } from "./canvas.js";

const NOISE = -1;
const PATIENCE = 150; // ms: orders may change at every step, and names need not be written that often

export class Board {
  // `cut` is called with the wires that are to be cut from now on, and with a sentence about it
  constructor(sensors, places, cut) {
    Object.assign(this, { list: sensors, places, cut, names: [], wire: [], gone: new Set(), waiting: 0 });
    places.addEventListener("keydown", (event) => this.walk(event));
    onNewColours(() => this.colour());
  }

  // Another agent; null where there are no wires
  lay(sensors, firstNoise) {
    Object.assign(this, { names: sensors ?? [], firstNoise, wire: [], now: "", done: "" });
    this.list.classList.toggle("many", this.names.length > 14);
    this.places.replaceChildren();
    this.list.replaceChildren(...this.names.map((_, sensor) => this.sensor(sensor)));
    this.noise = this.sensor(NOISE);
    this.noise.className = "noise";
    this.colour();
  }

  colour() {
    this.names.forEach((_, index) => {
      this.list.children[index].firstChild.style.setProperty("--hue", hue(index, this.names.length));
    });
  }

  // For all wires of a sensor, or of noise
  sensor(index) {
    const name = this.nameOf(index), row = line(() => this.toggle(this.wiresOf(index), name));
    row.firstChild.textContent = name;
    row.firstChild.title = `Cut the wires of ${name}, or mend them`;
    return row;
  }

  // For the wire that ends in a place just now
  place() {
    const row = line(() => {
      const place = [...this.places.children].indexOf(row), wire = this.wire[place];
      this.here(place);
      this.toggle([wire], this.nameOfWire(wire));
    });
    row.firstChild.tabIndex = -1;
    return row;
  }

  // What is wired where, and what of it is cut
  show(wire, cut) {
    const now = `${wire} ${cut}`, done = `${wire.length} ${cut}`;
    if (!this.names.length || now === this.now) return;
    const later = done === this.done; // it is only the order that has changed
    Object.assign(this, { wire, now, done, gone: new Set(cut) });
    if (later) this.waiting ||= setTimeout(() => this.write(), PATIENCE);
    else this.write();
  }

  write() {
    clearTimeout(this.waiting);
    this.waiting = 0;
    const noisy = this.wire.some((wire) => wire >= this.firstNoise);
    if (!noisy) this.noise.remove();
    else if (!this.noise.isConnected) this.list.append(this.noise);
    [...this.list.children].forEach((row, index) => {
      const wires = this.wiresOf(row === this.noise ? NOISE : index);
      const cut = wires.filter((wire) => this.gone.has(wire)).length;
      const pressed = cut === 0 ? "false" : cut === wires.length ? "true" : "mixed";
      row.firstChild.setAttribute("aria-pressed", pressed);
    });
    this.places.parentElement.style.setProperty("--rows", this.wire.length);
    while (this.places.children.length > this.wire.length) this.places.lastChild.remove();
    while (this.places.children.length < this.wire.length) this.places.append(this.place());
    [...this.places.children].forEach((row, place) => {
      const button = row.firstChild, wire = this.wire[place];
      const label = `Place ${place + 1}: ${this.nameOfWire(wire)}`;
      if (button.ariaLabel !== label) button.ariaLabel = button.title = label;
      button.setAttribute("aria-pressed", String(this.gone.has(wire)));
    });
    if (!this.places.querySelector("[tabindex='0']")) this.here(0);
  }

  toggle(wires, name) {
    if (!wires.length) return;
    const mended = wires.every((wire) => this.gone.has(wire));
    for (const wire of wires) mended ? this.gone.delete(wire) : this.gone.add(wire);
    this.cut([...this.gone].sort((one, other) => one - other), `${mended ? "Mended" : "Cut"}: ${name}.`);
  }

  // One place at a time can be reached by Tab, the others by the arrow keys
  here(place) {
    [...this.places.children].forEach((row, index) => { row.firstChild.tabIndex = index === place ? 0 : -1; });
  }

  walk(event) {
    const now = [...this.places.children].findIndex((row) => row.firstChild === event.target);
    const last = this.places.children.length - 1;
    const next = { ArrowUp: now - 1, ArrowDown: now + 1, Home: 0, End: last }[event.key];
    if (next === undefined || next < 0 || next > last) return;
    event.preventDefault();
    this.here(next);
    this.places.children[next].firstChild.focus();
  }

  wiresOf(index) {
    return [...this.wire].filter((wire) => this.sensorOf(wire) === index);
  }

  sensorOf(wire) {
    return wire >= this.firstNoise ? NOISE : wire % this.names.length;
  }

  nameOf(index) {
    return index === NOISE ? "noise" : this.names[index];
  }

  nameOfWire(wire) {
    if (wire >= this.firstNoise) return `noise ${wire - this.firstNoise + 1}`;
    const copy = Math.floor(wire / this.names.length);
    return this.nameOf(this.sensorOf(wire)) + (copy ? `, copy ${copy + 1}` : "");
  }
}

function line(click) {
  const row = document.createElement("li"), button = document.createElement("button");
  button.type = "button";
  button.addEventListener("click", click);
  row.append(button);
  return row;
}
