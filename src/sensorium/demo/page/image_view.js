// Images: the world's with hidden patches, and the agent's with the patches that it attends to.

import { colour } from "./canvas.js";

const MARKED = 10; // patches

// Draw an image, each pixel `zoom` times as wide
export function paint(canvas, image, zoom = 4) {
  const [height, width] = image.shape;
  if (canvas.width !== zoom * width || canvas.height !== zoom * height) {
    Object.assign(canvas, { width: zoom * width, height: zoom * height });
  }
  const pen = canvas.getContext("2d"), small = (canvas.small ??= document.createElement("canvas"));
  if (small.width !== width || small.height !== height) {
    Object.assign(small, { width, height });
    canvas.pixels = null;
  }
  const pixels = (canvas.pixels ??= new ImageData(width, height)), data = pixels.data;
  for (let from = 0, to = 0; from < image.length; from += 3, to += 4) {
    data[to] = image[from];
    data[to + 1] = image[from + 1];
    data[to + 2] = image[from + 2];
    data[to + 3] = 255;
  }
  small.getContext("2d").putImageData(pixels, 0, 0);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(small, 0, 0, canvas.width, canvas.height);
  return pen;
}

export function hide(canvas, pen, hidden, patch, cursor) {
  const size = 4 * patch, across = canvas.width / size;
  pen.fillStyle = "rgb(10 12 15 / .72)";
  pen.strokeStyle = "rgb(255 255 255 / .35)";
  pen.lineWidth = 1;
  hidden.forEach((is, place) => {
    if (!is) return;
    const x = (place % across) * size, y = Math.floor(place / across) * size;
    pen.fillRect(x, y, size, size);
    pen.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
  });
  if (cursor >= 0) {
    pen.strokeStyle = colour("warm");
    pen.lineWidth = 3;
    pen.strokeRect((cursor % across) * size, Math.floor(cursor / across) * size, size, size);
  }
}

// Frame the most important patches, and dim the rest
export function mark(canvas, pen, importance, corners, size) {
  const best = [...importance.keys()].sort((one, other) => importance[other] - importance[one]).slice(0, MARKED);
  const most = importance[best[0]] || 1;
  pen.save();
  pen.beginPath();
  pen.rect(0, 0, canvas.width, canvas.height);
  for (const place of best) {
    const [row, column] = corners[place];
    pen.rect(4 * column, 4 * row, 4 * size, 4 * size);
  }
  pen.fillStyle = "rgb(10 12 15 / .45)";
  pen.fill("evenodd");
  pen.restore();
  pen.lineWidth = 3;
  for (const place of best) {
    const [row, column] = corners[place];
    pen.globalAlpha = 0.35 + 0.65 * importance[place] / most;
    pen.strokeStyle = "#ffb454";
    pen.strokeRect(4 * column, 4 * row, 4 * size, 4 * size);
  }
  pen.globalAlpha = 1;
}
