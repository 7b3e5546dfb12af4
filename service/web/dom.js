// Elements without markup in strings, which the page's policy forbids.

export const by = (id) => document.getElementById(id);

export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element && name !== "role") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

// A number for people: few digits, no trailing zeros.
export function short(value, digits = 3) {
  if (!Number.isFinite(value)) return "–";
  const tiny = value && Math.abs(value) < 1e-3;
  return tiny ? value.toExponential(digits - 1) : String(Number(value.toPrecision(digits)));
}

export const inSight = (id) => by(id).scrollIntoView({ block: "nearest" });

export function option(value, text = value, properties = {}) {
  return el("option", { value, textContent: text, ...properties });
}

// Calls `work` soon, however often it is asked for at most once for each picture of the screen.
export function perFrame(work) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      work();
    });
  };
}

export async function copied(button, text) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Select the text and copy it"; // no permission, or no secure origin
  }
  setTimeout(() => (button.textContent = before), 1800);
}
