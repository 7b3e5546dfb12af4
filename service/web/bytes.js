// Numbers as text for a link: little-endian float32, or bits, in base64url.

export function toText(bytes) {
  const plain = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  return plain.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

export function fromText(text) {
  const plain = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(plain, (letter) => letter.charCodeAt(0));
}

export function floatsToText(values) {
  const view = new DataView(new ArrayBuffer(values.length * 4));
  values.forEach((value, i) => view.setFloat32(4 * i, value, true));
  return toText(new Uint8Array(view.buffer));
}

export function floatsFromText(text) {
  const bytes = fromText(text);
  const view = new DataView(bytes.buffer);
  return Array.from({ length: Math.floor(bytes.length / 4) }, (_, i) => view.getFloat32(4 * i, true));
}

export function bitsToText(bits) {
  const bytes = new Uint8Array(Math.ceil(bits.length / 8));
  bits.forEach((bit, i) => (bytes[i >> 3] |= (bit ? 1 : 0) << (i & 7)));
  return toText(bytes);
}

export function bitsFromText(text, count) {
  const bytes = fromText(text);
  return Array.from({ length: count }, (_, i) => (bytes[i >> 3] >> (i & 7)) & 1);
}
