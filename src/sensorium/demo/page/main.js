// The page: controls send changes, the server answers with the state, frames are drawn as they come.

import { colour, hue, onNewColours } from "./canvas.js";
import { ChannelButtons } from "./channel_buttons.js";
import { CodeHistory, drawChannels } from "./channels.js";
import { hide, mark, paint } from "./image_view.js";
import { MotorWires } from "./motor_wires.js";
import { NO_CHANGES, OWN_OBSERVATION, OWN_WIRES, fromFragment, toFragment } from "./permalink.js";
import { Socket } from "./socket.js";
import { ant, arm, cartpole, map, road, thrusters } from "./world.js";

const $ = (id) => document.getElementById(id);
const LARGEST_FILE = 4 * 2 ** 20;
const DEFAULT = "cartpole-pi-reshuffle";
const PRESETS = {
  five: { ...NO_CHANGES, agent: DEFAULT, wiring: 7 },
  fifteen: { ...NO_CHANGES, agent: DEFAULT, wiring: 7, noise: 10 },
  reshuffled: { ...NO_CHANGES, agent: DEFAULT, wiring: 7, every: 100 },
  ant: { ...NO_CHANGES, agent: "ant-pi-evolved", wiring: 7 },
  racing: { ...NO_CHANGES, agent: "carracing-attention-agent" },
  puzzle: { ...NO_CHANGES, agent: "carracing-pi", wiring: 7 },
  pong: { ...NO_CHANGES, agent: "pong-pi", wiring: 7 },
  doom: { ...NO_CHANGES, agent: "takecover-attention-agent-recurrent" },
  thrusters: { ...NO_CHANGES, agent: "thrusters-motors" },
  arm: { ...NO_CHANGES, agent: "arm-motors" },
};

const ARROWS = { ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right" };

let playing = false;
let about = null, state = null, frame = null, scenery = [], cursor = -1, before = null;
let dirty = false, lastSent = 0;
const code = new CodeHistory($("code"));
const buttons = new ChannelButtons($("sensors"), $("inputs"), (cut, sentence) => set({ cut }, sentence));
const wires = new MotorWires($("wires"), $("outputs"), $("motors"), set, () => { dirty = true; });
const stats = { frames: 0, drawn: 0, frame: null, state: null };
window.sensorium = stats; // for tests and measurements: what was drawn last

const socket = new Socket(controls, onMessage, (next) => {
  stats.frames += 1;
  keepCode(next);
  frame = next;
  dirty = true;
});

// What the session begins with
function controls() {
  return state ?? fromFragment(location.hash);
}

function onMessage(message) {
  if (message.preparing) say(`Preparing ${message.preparing}, which takes a while the first time.`);
  if (message.about) layOut(message.about);
  if (message.scenery) scenery = message.scenery;
  if (message.state) update(message.state, message.handled);
  if (message.error) {
    say(message.error, true);
    lastSent = 0;
    state = stats.state;
    if (state) show(state);
  }
  if (message.lost) say("The connection is lost; trying again.", true);
}

function say(sentence, wrong = false) {
  $("status").textContent = sentence;
  $("status").classList.toggle("wrong", wrong);
}

function set(changes, sentence) {
  lastSent = socket.send("set", { changes });
  // A second click before the answer to the first builds on it
  if (lastSent && state) state = { ...state, ...changes };
  if (sentence) say(sentence);
}

// Lay the page out for an agent and its world
function layOut(next) {
  about = next;
  frame = before = null;
  code.clear();
  document.body.dataset.drawing = about.drawing;
  const image = about.drawing === "image", sensors = Boolean(about.sensors);
  for (const field of document.querySelectorAll("[data-for]")) {
    const { for: what } = field.dataset;
    field.hidden = (what === "image" && !image) || (what === "colour" && !about.in_colour)
      || (what === "variants" && !about.variants.length)
      || (what === "sensors" && !(sensors && about.any_number));
  }
  $("channels").hidden = !sensors;
  $("image-panel").hidden = !image;
  $("push").hidden = !about.can_be_pushed;
  $("motors-panel").hidden = !about.motors.length;
  const motorsFirst = sensors && about.motors.length > about.sensors.length;
  layOutMotors(motorsFirst);
  layOutPlay();
  $("variant").replaceChildren(...about.variants.map((name) => new Option(name, name)));
  $("agent-name").textContent = about.agent;
  $("scene").hidden = about.drawing === "none";
  $("no-view").hidden = about.drawing !== "none";
  $("baseline-figure").hidden = !about.baseline;
  $("baseline-name").textContent = about.baseline ?? "";
  $("no-baseline").hidden = Boolean(about.baseline);
  $("no-baseline").textContent = withoutBaseline();
  $("summary").textContent = `${about.agent}: ${about.summary}`
    + (about.parameters && !about.summary.includes("parameters") ? ` ${about.parameters.toLocaleString("en")} parameters.` : "");
  $("observation-note").textContent = note();
  $("scene").tabIndex = image ? 0 : -1;
  $("scene").setAttribute("role", image ? "application" : "img");
  $("scene").setAttribute("aria-label", image
    ? "The image before the perturbation. Click patches to hide them, or move with the arrow keys and press Enter."
    : "The agent in its world");
  fillAgents();
  buttons.reset(about.sensors, about.first_noise);
  say(image ? "Click the image to hide patches."
      + (about.in_colour ? " Drop another onto the page to use it as background." : "")
    : motorsFirst ? "Press Rewire motors, or drag the end of a wire to another motor."
    : sensors && about.any_number ? "Press Shuffle. Click a sensor or an input to silence it."
    : FIXED);
}

// Above the sensors if there are more of them
function layOutMotors(first) {
  wires.reset(about.motors);
  document.body.classList.toggle("motors-first", first);
  $("rewire").hidden = about.motors.length < 2;
  $("rewire").classList.toggle("primary", first);
  $("shuffle").classList.toggle("primary", !first);
  $("motors-note").textContent = about.fixed_outputs ? "The agent knows its motors by their places."
    : "The agent finds out which output changes which sensor: orange more, blue less.";
}

// A button for each action that is one word, beside the one that takes the game from the agent
function layOutPlay() {
  $("play").hidden = !about.actions.length;
  for (const button of document.querySelectorAll("#play .move")) button.remove();
  about.actions.forEach((name, action) => {
    if (!action || name.includes(" ")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "move";
    button.textContent = name;
    button.onpointerdown = () => act(action);
    button.onpointerup = button.onpointerleave = button.onpointercancel = () => act(0);
    button.oncontextmenu = () => false;
    $("play").append(button);
  });
  play(false);
}

function play(now) {
  playing = now && about.actions.length > 0;
  $("take-over").setAttribute("aria-pressed", String(playing));
  $("take-over").textContent = playing ? "Let the agent play" : "Play yourself";
  for (const button of document.querySelectorAll("#play .move")) button.hidden = !playing;
  document.body.classList.toggle("playing", playing);
}

function takeOver() {
  play(!playing);
  socket.send("act", { action: playing ? 0 : -1 });
  say(playing ? "You play, with what the agent gets: hold a button, or an arrow key." : "The agent plays.");
}

function act(action) {
  if (playing) socket.send("act", { action });
}

const FIXED = "This agent needs its inputs in their natural order.";

function withoutBaseline() {
  return about.any_number === false || about.attends === "to all pixels" ? FIXED : "";
}

const ATTENDS = {
  "to places": "The agent attends to the ten framed patches and gets their positions only, so it fails if patches are shuffled.",
  "to contents": "The agent attends to the contents of patches, in any order.",
  "to all pixels": "The agent gets all pixels and needs them in their natural order.",
};

function note() {
  const needs = about.baseline ? `The baseline ${about.baseline} needs` : "";
  if (about.drawing === "image") return ATTENDS[about.attends] + (needs && ` ${needs} pixels in their natural order.`);
  return needs && `${needs} the natural order, and gets the first ${about.sensors.length} inputs.`;
}

function fillAgents() {
  if (!$("agent").options.length) {
    for (const name of about.agents) $("agent").add(new Option(name, name));
    for (const button of document.querySelectorAll("[data-needs]")) {
      button.hidden = !about.agents.includes(button.dataset.needs);
    }
  }
  $("agent").value = about.agent;
}

// Take over the state that the server sends, unless it is older than the last change
function update(next, handled) {
  stats.state = next;
  if (state && handled < lastSent) return;
  state = next;
  show(state);
  history.replaceState(null, "", toFragment(state));
  describe();
}

function show(now) {
  for (const name of ["copies", "speed", "background", "modify", "noise", "occlude"]) $(name).value = now[name];
  for (const name of ["every", "seed"]) { // not while the user types
    if (document.activeElement !== $(name)) $(name).value = name === "every" && !now.every ? "" : now[name];
  }
  $("background").querySelector("[value=upload]").disabled = now.background !== "upload";
  $("variant").value = now.variant || about.variants[0];
  $("text-field").hidden = now.variant !== "text";
  if (document.activeElement !== $("text")) $("text").value = now.text;
  $("noise-now").textContent = now.noise;
  $("occlude-now").textContent = `${now.occlude} %`;
  $("pause").textContent = now.paused ? "Resume" : "Pause";
  $("pause").setAttribute("aria-pressed", String(now.paused));
  $("step").disabled = !now.paused;
  $("order").disabled = !now.wiring && !now.every;
  wires.update(now);
  $("unwire").disabled = !wires.changed;
}

// The order in words, for screen readers
function describe() {
  if (!frame?.source || !about?.sensors) return;
  const names = [...frame.source].map((sensor) => (sensor < 0 ? "noise" : about.sensors[sensor]));
  $("order-now").textContent = `Order now: ${names.join(", ")}.`;
}

function hidePatch(place) {
  const hidden = state.hidden.includes(place);
  const next = hidden ? state.hidden.filter((each) => each !== place) : [...state.hidden, place];
  set({ hidden: next }, `Patch ${place + 1} is ${hidden ? "shown" : "hidden"}.`);
}

// Frames

function keepCode(next) {
  const order = `${next.reshuffles} ${next.source}`;
  if (next.code && about) code.add(next.code, before !== null && order !== before);
  if (before !== order) queueMicrotask(describe);
  before = order;
}

function draw() {
  requestAnimationFrame(draw);
  if (!dirty || !frame || !about) return;
  dirty = false;
  score("agent", frame.agent);
  if (frame.baseline) score("baseline", frame.baseline);
  const action = (frame.command?.[0] ?? 0) / 127;
  DRAWINGS[about.drawing]?.(action);
  if (frame.channel && state) {
    drawChannels($("wiring"), frame, about.sensors, state.cut);
    buttons.show(frame.channel, state.cut);
  }
  if (about.motors.length && state) wires.draw(frame, channelHues());
  $("digests").textContent = frame.digest ? "changes" : "";
  $("queries").textContent = frame.attention ? "attention" : "";
  $("code-panel").hidden = !frame.code;
  if (frame.code) code.draw();
  stats.drawn += 1;
  stats.frame = frame;
  socket.drawn();
}

// Of the sensors at the inputs
function channelHues() {
  const count = about.sensors?.length ?? 0;
  return [...frame.source ?? []].map((sensor) => (sensor < 0 ? colour("noise") : hue(sensor, count)));
}

// By the world's `drawing`, see `World` in envs/base.py; images, and those that a world renders itself
const DRAWINGS = {
  cartpole(action) {
    cartpole($("scene"), frame.pose, action, false);
    if (frame.baseline_pose) cartpole($("baseline-scene"), frame.baseline_pose, 0, true);
  },
  ant() {
    ant($("scene"), frame.pose, false);
    if (frame.baseline_pose) ant($("baseline-scene"), frame.baseline_pose, true);
  },
  thrusters() {
    thrusters($("scene"), frame.pose, false);
    if (frame.baseline_pose) thrusters($("baseline-scene"), frame.baseline_pose, true);
  },
  arm() {
    arm($("scene"), frame.pose, frame.command, false);
    if (frame.baseline_pose) arm($("baseline-scene"), frame.baseline_pose, null, true);
  },
  road() {
    road($("scene"), frame.pose, scenery);
  },
  image() {
    drawImages();
    if (frame.baseline_pose) map($("baseline-scene"), scenery, frame.pose, frame.baseline_pose);
  },
  rendered() {
    if (frame.view) paint($("scene"), frame.view, 1);
  },
};

function drawImages() {
  const pen = paint($("scene"), frame.image);
  hide($("scene"), pen, frame.hidden, about.patch, document.activeElement === $("scene") ? cursor : -1);
  const arrived = paint($("arrived"), frame.arrived ?? frame.image);
  if (frame.importance) mark($("arrived"), arrived, frame.importance, about.corners, about.size);
}

// The meter is full at the return from which on an episode is solved, if the world has one
function score(name, { total, time, ended }) {
  const digits = Math.abs(total) < 1 ? { maximumSignificantDigits: 2 } : { maximumFractionDigits: 0 };
  $(`${name}-score`).textContent = (total ?? NaN).toLocaleString("en", digits); // null is not finite
  const share = about.solved ? Math.max(0, Math.min(1, total / about.solved)) : 0;
  $(`${name}-meter`).style.transform = `scaleX(${share})`;
  const at = `step ${time.toLocaleString("en")}`;
  const note = ended === "failed" ? `${about.failure} at ${at}` : ended === "time" ? "time limit reached" : at;
  if ($(`${name}-note`).textContent !== note) $(`${name}-note`).textContent = note;
}

// Controls

const shuffle = () => { lastSent = socket.send("shuffle"); say("Shuffled."); };
const naturalOrder = () => set({ wiring: 0, every: 0 }, "The natural order is restored.");
const push = (strength) => { socket.send("push", { strength }); say("Pushed."); };
const pause = () => set({ paused: !state?.paused }, state?.paused ? "Resumed." : "Paused.");
const step = () => { socket.send("step"); };
const whole = (field, most) => Math.max(0, Math.min(most, Math.round(Number(field.value)) || 0));
const reset = () => {
  const seed = whole($("seed"), 2 ** 31 - 1);
  lastSent = socket.send("reset", { seed });
  say(`A new episode from seed ${seed}.`);
};

$("shuffle").onclick = shuffle;
$("order").onclick = naturalOrder;
$("rewire").onclick = () => wires.rewire();
$("unwire").onclick = () => set(OWN_WIRES, "Each output is wired to its own motor.");
$("take-over").onclick = takeOver;
$("push-left").onclick = () => push(-1);
$("push-right").onclick = () => push(1);
$("pause").onclick = pause;
$("step").onclick = step;
$("reset").onclick = reset;
$("seed").onchange = reset;
$("undo").onclick = () => set({ ...NO_CHANGES, speed: 1, paused: false }, "All changes are undone.");
$("agent").onchange = (event) => change({ ...OWN_OBSERVATION, agent: event.target.value });
$("every").onchange = () => {
  const every = whole($("every"), 1000);
  $("every").value = every || "";
  set({ every }, every ? `A new order every ${every} step${every > 1 ? "s" : ""}.` : "The order stays.");
};
for (const name of ["copies", "speed"]) {
  $(name).onchange = (event) => set({ [name]: Number(event.target.value) }, describeChoice(event.target));
}
for (const name of ["background", "modify"]) {
  $(name).onchange = (event) => set({ [name]: event.target.value }, describeChoice(event.target));
}
$("variant").onchange = (event) => set({ variant: event.target.value }, describeChoice(event.target));
$("text").onchange = (event) => set({ text: event.target.value }, event.target.value ? "Your text is shown." : "The text is its own.");
for (const name of ["noise", "occlude"]) {
  $(name).oninput = (event) => {
    $(`${name}-now`).textContent = event.target.value + (name === "occlude" ? " %" : "");
    set({ [name]: Number(event.target.value) });
  };
}
for (const button of document.querySelectorAll("[data-preset]")) {
  button.onclick = () => change({ ...PRESETS[button.dataset.preset], speed: 1, paused: false }, button.textContent);
}
$("share").onclick = async () => {
  try {
    await navigator.clipboard.writeText(location.href);
    say(state?.background === "upload" ? "Link copied; your own image is not in it." : "Link copied.");
  } catch {
    say("Copy the address of this page: it holds all that is set.");
  }
};

const describeChoice = (control) =>
  `${control.labels[0].textContent}: ${control.selectedOptions[0].textContent}.`;

function change(changes, name = changes.agent) {
  if (changes.agent === about?.agent) delete changes.agent;
  set(changes, `${name}.`);
}

addEventListener("hashchange", () => {
  const linked = fromFragment(location.hash);
  if (toFragment(linked) !== toFragment(state ?? {})) change({ ...NO_CHANGES, ...linked }, "From the link");
});

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const at = event.target;
  if (at === $("scene") && about?.drawing === "image" && moveCursor(event)) return;
  if (at.matches("input, select, textarea, summary")) return;
  const keys = { s: shuffle, m: () => about?.motors.length > 1 && wires.rewire(), o: naturalOrder, r: reset, ".": step };
  if (!$("play").hidden) keys.p = takeOver;
  if (playing) {
    for (const [key, name] of Object.entries(ARROWS)) {
      const action = about.actions.indexOf(name);
      if (action > 0) keys[key] = () => event.repeat || act(action);
    }
  }
  if (!$("push").hidden) Object.assign(keys, { ArrowLeft: () => push(-1), ArrowRight: () => push(1) });
  if (!at.matches("button")) keys[" "] = pause;
  const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

addEventListener("keyup", (event) => {
  if (event.key in ARROWS) act(0);
});

// Patches, by mouse and by keyboard

const across = () => Math.round(about.shape[1] / about.patch);

$("scene").addEventListener("click", (event) => {
  if (about?.drawing !== "image" || !state) return;
  const box = $("scene").getBoundingClientRect(), side = across();
  const column = Math.floor((event.clientX - box.left) / box.width * side);
  const row = Math.floor((event.clientY - box.top) / box.height * side);
  cursor = row * side + column;
  hidePatch(cursor);
});

function moveCursor(event) {
  const side = across(), moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -side, ArrowDown: side };
  if (event.key in moves) {
    const next = cursor < 0 ? side * side / 2 + side / 2 : cursor + moves[event.key];
    if (next >= 0 && next < side * side) cursor = next;
    dirty = true;
  } else if (event.key === "Enter" && cursor >= 0) hidePatch(cursor);
  else return false;
  event.preventDefault();
  return true;
}

// Uploads

function upload(file) {
  if (!about?.in_colour) say("This world has no background to put an image into.", true);
  else if (!file.type.startsWith("image/")) say("That file is no image.", true);
  else if (file.size > LARGEST_FILE) say("An image may have 4 MB; this one has more.", true);
  else {
    socket.sendFile(file);
    say(`${file.name} is the background.`);
  }
}

$("file").onchange = (event) => event.target.files[0] && upload(event.target.files[0]);
addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("dropping");
});
addEventListener("dragleave", () => document.body.classList.remove("dropping"));
addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dropping");
  if (event.dataTransfer.files[0]) upload(event.dataTransfer.files[0]);
});

onNewColours(() => { dirty = true; });
requestAnimationFrame(draw);
