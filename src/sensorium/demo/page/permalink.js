// All controls as the fragment of the address: a link that can be shared.

const LISTS = ["cut", "hidden", "motors", "motors_reversed", "motors_cut"], WORDS = ["agent", "background", "modify", "variant", "text"];

export const OWN_WIRES = { motors: [], motors_reversed: [], motors_cut: [] };

export const OWN_OBSERVATION = {
  wiring: 0, every: 0, noise: 0, copies: 1, cut: [], occlude: 0, hidden: [], background: "", modify: "",
  variant: "", text: "",
};

export const NO_CHANGES = { ...OWN_OBSERVATION, ...OWN_WIRES };

const DEFAULTS = { ...NO_CHANGES, seed: 1, speed: 1, paused: false };

export function toFragment(state) {
  const parts = [];
  for (const [name, value] of Object.entries(state)) {
    // An uploaded image is not in the link
    if (name === "background" && value === "upload") continue;
    if (name in DEFAULTS && String(value) === String(DEFAULTS[name])) continue;
    parts.push(`${name}=${encodeURIComponent(LISTS.includes(name) ? value.join(".") : value)}`);
  }
  return "#" + parts.join("&");
}

export function fromFragment(fragment) {
  const state = {};
  for (const [name, text] of new URLSearchParams(fragment.replace(/^#/, ""))) {
    if (LISTS.includes(name)) state[name] = text.split(".").filter(Boolean).map(Number);
    else if (WORDS.includes(name)) state[name] = text;
    else if (name === "paused") state[name] = text === "true";
    else if (name in DEFAULTS) state[name] = Number(text);
  }
  return state;
}
