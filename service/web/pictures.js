// One row of numbers as a picture: an image where the model's rows are images, bars elsewhere.

import { grey, signed } from "./colours.js";
import { el, short } from "./dom.js";

// What all drawing must know about a model; `low` and `high` are the data's own, column by column.
export function faceOf(detail) {
  const [height, width, channels = 1] = detail.image ?? [];
  return {
    dims: detail.input_dims,
    image: detail.image ? { height, width, channels } : null,
    low: detail.low,
    high: detail.high,
    darkest: Math.min(...detail.low),
    brightest: Math.max(...detail.high),
    names: detail.features ?? Array.from(detail.low, (_, i) => `x${i + 1}`),
  };
}

// A canvas with its own painter: `paint(x)`; with a sign, blue is below zero and orange above.
export function picture(face, { withSign = false, label = "" } = {}) {
  const canvas = el("canvas", { className: "picture", role: "img", "aria-label": label });
  const paint = face.image ? imagePainter(canvas, face, withSign) : barPainter(canvas, face, withSign);
  return { canvas, paint };
}

function imagePainter(canvas, face, withSign) {
  const { height, width, channels } = face.image;
  [canvas.width, canvas.height] = [width, height];
  canvas.classList.add("pixels");
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  image.data.fill(255);
  return (x) => {
    const largest = withSign ? Math.max(1e-12, ...x.map(Math.abs)) : 1;
    const unit = (v) => (v - face.darkest) / (face.brightest - face.darkest || 1);
    for (let i = 0; i < height * width; i += 1) {
      image.data.set(colour(x, i), 4 * i);
    }
    context.putImageData(image, 0, 0);

    function colour(values, i) {
      if (channels === 1) return withSign ? signed(values[i] / largest) : grey(unit(values[i]));
      const rgb = [0, 1, 2].map((c) => values[channels * i + Math.min(c, channels - 1)]);
      return rgb.map((v) => 255 * (withSign ? (v / largest + 1) / 2 : unit(v)));
    }
  };
}

function barPainter(canvas, face, withSign) {
  const d = face.dims;
  [canvas.width, canvas.height] = [480, 240];
  const context = canvas.getContext("2d");
  const { width, height } = canvas;
  return (x) => {
    context.clearRect(0, 0, width, height);
    const largest = withSign ? Math.max(1e-12, ...x.map(Math.abs)) : 1;
    for (let j = 0; j < d; j += 1) {
      const span = face.high[j] - face.low[j] || 1;
      const t = withSign ? x[j] / largest : (2 * (x[j] - face.low[j])) / span - 1; // -1 to 1
      const [r, g, b] = withSign ? signed(t) : [201, 196, 182];
      const tall = Math.min(1.15, Math.abs(t)) * (height / 2 - 8);
      context.fillStyle = `rgb(${r} ${g} ${b})`;
      context.fillRect((j + 0.15) * (width / d), height / 2 - (t > 0 ? tall : 0), (0.7 * width) / d, tall);
    }
    context.fillStyle = "rgb(140 146 158 / 0.6)";
    context.fillRect(0, height / 2 - 1, width, 2);
  };
}

// The numbers themselves, where there are few enough to read.
export function inWords(face, x) {
  if (face.image || face.dims > 6) return "";
  return Array.from(x, (v, j) => `${face.names[j]} ${short(v)}`).join(", ");
}
