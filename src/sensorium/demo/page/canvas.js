// What all drawings share: sharp canvases, and the colours of the style sheet.

const known = new Map();

export function colour(name) {
  if (!known.has(name)) {
    known.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  }
  return known.get(name);
}

export const channels = (name) => {
  const hex = colour(name).slice(1);
  const full = hex.length === 3 ? [...hex].map((c) => c + c).join("") : hex;
  return [0, 2, 4].map((at) => parseInt(full.slice(at, at + 2), 16));
};

const listeners = [];
export const onNewColours = (listener) => listeners.push(listener);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  known.clear();
  listeners.forEach((listener) => listener());
});

// A hue for each sensor: the six of the style sheet, or a rainbow where there are more
export function hue(index, count) {
  if (count <= 6) return colour(`s${index}`);
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  return `hsl(${Math.round(215 + 300 * index / count) % 360} ${dark ? 60 : 55}% ${dark ? 65 : 42}%)`;
}

// Size of a canvas in CSS pixels; its context draws in them
const sizes = new WeakMap();
const observer = new ResizeObserver((entries) => {
  for (const entry of entries) measure(entry.target);
});

function measure(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const ratio = Math.min(devicePixelRatio || 1, 2);
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  sizes.set(canvas, { width, height, ratio });
}

export function open(canvas) {
  if (!sizes.has(canvas)) {
    measure(canvas);
    observer.observe(canvas);
  }
  const { width, height, ratio } = sizes.get(canvas);
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return { pen, width, height };
}
