// Two colour maps of 256 entries: from dark to light for pixels, and from blue over dark to orange
// for numbers with a sign, where dark is zero. Both read the same for most kinds of colour
// blindness.

const DARK = [17, 21, 29];
const LIGHT = [250, 245, 232];
const MINUS = [86, 164, 255];
const PLUS = [255, 152, 66];

export const walkerColour = (i, alpha = 1) =>
  `oklch(${i % 2 ? 0.8 : 0.72} 0.12 ${(i * 137.5) % 360} / ${alpha})`;

const between = (a, b, t) => a.map((value, i) => Math.round(value + (b[i] - value) * t));
const GREYS = Array.from({ length: 256 }, (_, i) => between(DARK, LIGHT, i / 255));
const SIGNED = Array.from({ length: 256 }, (_, i) => {
  const t = (i - 127.5) / 127.5;
  return between(DARK, t < 0 ? MINUS : PLUS, Math.abs(t));
});

const entry = (map, t) => map[Math.max(0, Math.min(255, Math.round(t * 255)))];

export const grey = (t) => entry(GREYS, t);
export const signed = (t) => entry(SIGNED, (t + 1) / 2); // t from -1 to 1
