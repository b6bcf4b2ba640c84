// The page: controls say what is wanted, the server says what is so, frames are drawn as they come.

import { Board } from "./board.js";
import { onNewColours } from "./canvas.js";
import { Line } from "./line.js";
import { PLAIN, fromFragment, toFragment } from "./link.js";
import { CodeHistory, wiring } from "./senses.js";
import { hide, mark, paint } from "./sight.js";
import { ant, cartpole, map, road } from "./world.js";

const $ = (id) => document.getElementById(id);
const LARGEST_FILE = 4 * 2 ** 20;
const BEST = "cartpole-pi-reshuffle-100";
const PRESETS = {
  five: { ...PLAIN, agent: BEST, wiring: 7 },
  fifteen: { ...PLAIN, agent: BEST, wiring: 7, noise: 10 },
  restless: { ...PLAIN, agent: BEST, wiring: 7, every: 100 },
  ant: { ...PLAIN, agent: "ant-pi-large", wiring: 7 },
  racing: { ...PLAIN, agent: "carracing-attention-agent" },
  puzzle: { ...PLAIN, agent: "carracing-pi", wiring: 7 },
};

let about = null, state = null, frame = null, line = [], cursor = -1, before = null;
let dirty = false, asked = 0;
const code = new CodeHistory($("code"));
const board = new Board($("sensors"), $("places"), (cut, sentence) => want({ cut }, sentence));
const stats = { frames: 0, drawn: 0, frame: null, state: null };
window.sensorium = stats; // for tests and measurements: what was drawn last

const connection = new Line(greeting, hear, (next) => {
  stats.frames += 1;
  keepCode(next);
  frame = next;
  dirty = true;
});

function greeting() {
  return state ?? fromFragment(location.hash);
}

function hear(news) {
  if (news.preparing) tell(`Preparing ${news.preparing}, which takes a while the first time.`);
  if (news.about) begin(news.about);
  if (news.scenery) line = news.scenery;
  if (news.state) settle(news.state, news.heard);
  if (news.refused) {
    tell(news.refused, true);
    asked = 0;
    state = stats.state;
    if (state) show(state);
  }
  if (news.lost) tell("The connection is lost; trying again.", true);
}

function tell(sentence, wrong = false) {
  $("status").textContent = sentence;
  $("status").classList.toggle("wrong", wrong);
}

function want(changes, sentence) {
  asked = connection.say("set", { changes });
  // Who clicks twice before the answer comes has clicked twice
  if (asked && state) state = { ...state, ...changes };
  if (sentence) tell(sentence);
}

// Another agent: the page is laid out for its world
function begin(next) {
  about = next;
  frame = before = null;
  code.clear();
  document.body.dataset.kind = about.kind;
  const picture = about.kind === "picture", wires = Boolean(about.sensors);
  for (const field of document.querySelectorAll("[data-for]")) {
    const { for: what } = field.dataset;
    field.hidden = (what === "picture" && !picture) || (what === "wires" && !(wires && about.any_number));
  }
  $("wires").hidden = !wires;
  $("sight").hidden = !picture;
  $("push").hidden = !["cartpole", "ant"].includes(about.kind);
  $("lead-name").textContent = about.agent;
  $("lead").hidden = about.kind === "nothing";
  $("no-view").hidden = about.kind !== "nothing";
  $("rival-figure").hidden = !about.rival;
  $("rival-name").textContent = about.rival ?? "";
  $("no-rival").hidden = Boolean(about.rival);
  $("no-rival").textContent = whyNoRival();
  $("summary").textContent = `${about.agent}: ${about.summary}`
    + (about.parameters && !about.summary.includes("parameters") ? ` ${about.parameters.toLocaleString("en")} parameters.` : "");
  $("senses-note").textContent = note();
  $("lead").tabIndex = picture ? 0 : -1;
  $("lead").setAttribute("role", picture ? "application" : "img");
  $("lead").setAttribute("aria-label", picture
    ? "The picture as it is. Click patches to hide them, or move with the arrow keys and press Enter."
    : "The agent in its world");
  fillAgents();
  board.lay(about.sensors, about.first_noise);
  tell(picture ? "Click on the picture to hide patches of it; drop a picture of yours to replace the grass of a road."
    : wires && about.any_number ? "Press Shuffle, or a sensor or a place to cut its wire."
    : "This agent knows its inputs by their places.");
}

function whyNoRival() {
  if (about.looks === "everywhere") return "This agent knows each pixel by its place: shuffle the patches, and see.";
  return about.any_number === false ? "This agent knows its inputs by their places: shuffle them, and see." : "";
}

const LOOKS = {
  "at places": "The agent looks at the ten framed patches and hears only where they are: shuffled patches blind it.",
  anywhere: "The agent takes the patches of the picture in any order.",
  everywhere: "The agent looks at the whole picture at once, and knows every pixel by its place.",
};

function note() {
  if (about.kind === "picture") {
    return LOOKS[about.looks] + (about.rival ? ` ${about.rival} knows every pixel by its place.` : "");
  }
  return about.rival
    ? `The agent does not know which wire is which. ${about.rival} does: it takes the first ${about.sensors.length} places.`
    : "";
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

// What the server says is so
function settle(next, heard) {
  stats.state = next;
  if (state && heard < asked) return;
  state = next;
  show(state);
  history.replaceState(null, "", toFragment(state));
  describe();
}

function show(now) {
  for (const name of ["copies", "speed", "background", "modify", "noise", "occlude"]) $(name).value = now[name];
  for (const name of ["every", "seed"]) { // not while somebody writes there
    if (document.activeElement !== $(name)) $(name).value = name === "every" && !now.every ? "" : now[name];
  }
  $("background").querySelector("[value=dropped]").disabled = now.background !== "dropped";
  $("noise-now").textContent = now.noise;
  $("occlude-now").textContent = `${now.occlude} %`;
  $("pause").textContent = now.paused ? "Go on" : "Pause";
  $("pause").setAttribute("aria-pressed", String(now.paused));
  $("step").disabled = !now.paused;
  $("order").disabled = !now.wiring && !now.every;
}

// The order in words, for those who cannot see the wires
function describe() {
  if (!frame?.source || !about?.sensors) return;
  const names = [...frame.source].map((sensor) => (sensor < 0 ? "noise" : about.sensors[sensor]));
  $("order-now").textContent = `Order now: ${names.join(", ")}.`;
}

function hidePatch(place) {
  const gone = state.hidden.includes(place);
  const next = gone ? state.hidden.filter((each) => each !== place) : [...state.hidden, place];
  want({ hidden: next }, `Patch ${place + 1} is ${gone ? "shown" : "hidden"}.`);
}

// Frames

function keepCode(next) {
  const senses = `${next.turn} ${next.source}`;
  if (next.code && about) code.add(next.code, before !== null && senses !== before);
  if (before !== senses) queueMicrotask(describe);
  before = senses;
}

function draw() {
  requestAnimationFrame(draw);
  if (!dirty || !frame || !about) return;
  dirty = false;
  score("lead", frame.lead);
  if (frame.rival) score("rival", frame.rival);
  const action = (frame.action?.[0] ?? 0) / 127;
  if (about.kind === "cartpole") {
    cartpole($("lead"), frame.body, action, false);
    if (frame.rival_body) cartpole($("rival"), frame.rival_body, 0, true);
  } else if (about.kind === "ant") {
    ant($("lead"), frame.body, false);
    if (frame.rival_body) ant($("rival"), frame.rival_body, true);
  } else if (about.kind === "road") road($("lead"), frame.body, line);
  else if (about.kind === "picture") {
    drawSight();
    if (frame.rival_body) map($("rival"), line, frame.body, frame.rival_body);
  } else if (frame.view) paint($("lead"), frame.view, 1);
  if (frame.wire && state) {
    wiring($("wiring"), frame, about.sensors, state.cut);
    board.show(frame.wire, state.cut);
  }
  $("queries").textContent = frame.attention ? "attention" : "";
  $("code-panel").hidden = !frame.code;
  if (frame.code) code.draw();
  stats.drawn += 1;
  stats.frame = frame;
  connection.drawn();
}

function drawSight() {
  const pen = paint($("lead"), frame.picture);
  hide($("lead"), pen, frame.hidden, about.patch, document.activeElement === $("lead") ? cursor : -1);
  const arrived = paint($("arrived"), frame.arrived ?? frame.picture);
  if (frame.looked) mark($("arrived"), arrived, frame.looked, about.corners, about.size);
}

const ENDS = {
  cartpole: "left the track", ant: "fell", picture: "done, or off the field", road: "done, or off the field",
};

const MOST = { cartpole: 1000, ant: 3000, picture: 1000, road: 1000 };

function score(who, { total, time, ended }) {
  const digits = Math.abs(total) < 1 ? { maximumSignificantDigits: 2 } : { maximumFractionDigits: 0 };
  $(`${who}-score`).textContent = (total ?? NaN).toLocaleString("en", digits); // null is not finite
  const most = MOST[about.kind]; // of other worlds one does not know
  $(`${who}-meter`).style.transform = `scaleX(${most ? Math.max(0, Math.min(1, total / most)) : 0})`;
  const how = ended === "failed" ? `${ENDS[about.kind] ?? "ended"} at step ${time.toLocaleString("en")}`
    : ended === "time" ? "time is up" : `step ${time.toLocaleString("en")}`;
  if ($(`${who}-note`).textContent !== how) $(`${who}-note`).textContent = how;
}

// Controls

const shuffle = () => { asked = connection.say("shuffle"); tell("Shuffled."); };
const own = () => want({ wiring: 0, every: 0 }, "Every sensor is back in its own place.");
const push = (strength) => { connection.say("push", { strength }); tell("Pushed."); };
const pause = () => want({ paused: !state?.paused }, state?.paused ? "Going on." : "Paused.");
const step = () => { connection.say("step"); };
const whole = (field, most) => Math.max(0, Math.min(most, Math.round(Number(field.value)) || 0));
const reset = () => {
  const seed = whole($("seed"), 2 ** 31 - 1);
  asked = connection.say("reset", { seed });
  tell(`A new episode from seed ${seed}.`);
};

$("shuffle").onclick = shuffle;
$("order").onclick = own;
$("push-left").onclick = () => push(-1);
$("push-right").onclick = () => push(1);
$("pause").onclick = pause;
$("step").onclick = step;
$("reset").onclick = reset;
$("seed").onchange = reset;
$("mend").onclick = () => want({ ...PLAIN, speed: 1, paused: false }, "All is as it was.");
$("agent").onchange = (event) => change({ ...PLAIN, agent: event.target.value });
$("every").onchange = () => {
  const every = whole($("every"), 1000);
  $("every").value = every || "";
  want({ every }, every ? `A new order every ${every} step${every > 1 ? "s" : ""}.` : "The order stays.");
};
for (const name of ["copies", "speed"]) {
  $(name).onchange = (event) => want({ [name]: Number(event.target.value) }, said(event.target));
}
for (const name of ["background", "modify"]) {
  $(name).onchange = (event) => want({ [name]: event.target.value }, said(event.target));
}
for (const name of ["noise", "occlude"]) {
  $(name).oninput = (event) => {
    $(`${name}-now`).textContent = event.target.value + (name === "occlude" ? " %" : "");
    want({ [name]: Number(event.target.value) });
  };
}
for (const button of document.querySelectorAll("[data-preset]")) {
  button.onclick = () => change({ ...PRESETS[button.dataset.preset], speed: 1, paused: false }, button.textContent);
}
$("share").onclick = async () => {
  try {
    await navigator.clipboard.writeText(location.href);
    tell(state?.background === "dropped" ? "Link copied; your own picture is not in it." : "Link copied.");
  } catch {
    tell("Copy the address of this page: it holds all that is set.");
  }
};

const said = (control) =>
  `${control.labels[0].textContent}: ${control.selectedOptions[0].textContent}.`;

function change(changes, name = changes.agent) {
  if (changes.agent === about?.agent) delete changes.agent;
  want(changes, `${name}.`);
}

addEventListener("hashchange", () => {
  const wanted = fromFragment(location.hash);
  if (toFragment(wanted) !== toFragment(state ?? {})) change({ ...PLAIN, ...wanted }, "From the link");
});

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const at = event.target;
  if (at === $("lead") && about?.kind === "picture" && walk(event)) return;
  if (at.matches("input, select, textarea, summary")) return;
  const keys = { s: shuffle, o: own, r: reset, ".": step };
  if (!$("push").hidden) Object.assign(keys, { ArrowLeft: () => push(-1), ArrowRight: () => push(1) });
  if (!at.matches("button")) keys[" "] = pause;
  const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

// Patches, by mouse and by keyboard

const across = () => Math.round(about.shape[1] / about.patch);

$("lead").addEventListener("click", (event) => {
  if (about?.kind !== "picture" || !state) return;
  const box = $("lead").getBoundingClientRect(), side = across();
  const column = Math.floor((event.clientX - box.left) / box.width * side);
  const row = Math.floor((event.clientY - box.top) / box.height * side);
  cursor = row * side + column;
  hidePatch(cursor);
});

function walk(event) {
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

// Pictures that are dropped

function send(file) {
  if (about?.kind !== "picture") tell("Only the racing car has a background to put a picture into.", true);
  else if (!file.type.startsWith("image/")) tell("That is no picture.", true);
  else if (file.size > LARGEST_FILE) tell("A picture may have 4 MB; this one has more.", true);
  else {
    connection.sendFile(file);
    tell(`${file.name} is where the grass was.`);
  }
}

$("file").onchange = (event) => event.target.files[0] && send(event.target.files[0]);
addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("dropping");
});
addEventListener("dragleave", () => document.body.classList.remove("dropping"));
addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dropping");
  if (event.dataTransfer.files[0]) send(event.dataTransfer.files[0]);
});

onNewColours(() => { dirty = true; });
requestAnimationFrame(draw);
