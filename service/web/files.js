// A row of numbers from a file that was dropped in: an image, a row of CSV, or a .npy array. What
// cannot be read is refused with a sentence.

const MAGIC = [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59]; // \x93NUMPY
const LARGEST = 32 * 2 ** 20; // bytes
const READERS = {
  f8: (view, at, little) => view.getFloat64(at, little),
  f4: (view, at, little) => view.getFloat32(at, little),
  u1: (view, at) => view.getUint8(at),
  i1: (view, at) => view.getInt8(at),
  b1: (view, at) => view.getUint8(at),
  u2: (view, at, little) => view.getUint16(at, little),
  i2: (view, at, little) => view.getInt16(at, little),
  u4: (view, at, little) => view.getUint32(at, little),
  i4: (view, at, little) => view.getInt32(at, little),
  u8: (view, at, little) => Number(view.getBigUint64(at, little)),
  i8: (view, at, little) => Number(view.getBigInt64(at, little)),
};

// { values, notice }: the first row of the file, and what was done to it.
export async function rowOf(file, face) {
  if (file.size > LARGEST) throw new Error(`${file.name} is larger than 32 MB.`);
  if (file.type.startsWith("image/")) return fromImage(file, face);
  const bytes = new Uint8Array(await file.arrayBuffer());
  const numbers = MAGIC.every((byte, i) => bytes[i] === byte)
    ? fromNpy(bytes, file.name)
    : fromCsv(new TextDecoder().decode(bytes), file.name, face);
  return fitting(numbers, file.name, face);
}

async function fromImage(file, face) {
  if (!face.image) {
    const wanted = `${face.dims} numbers: give a CSV row or a .npy file`;
    throw new Error(`${file.name} is an image, but this model's rows are ${wanted}.`);
  }
  const bitmap = await createImageBitmap(file).catch(() => {
    throw new Error(`${file.name} cannot be read as an image.`);
  });
  const { width, height, channels } = face.image;
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, 0, 0, width, height);
  const { data } = context.getImageData(0, 0, width, height);
  const span = face.brightest - face.darkest;
  const values = new Float64Array(face.dims);
  for (let i = 0; i < width * height; i += 1) {
    const [r, g, b] = data.subarray(4 * i, 4 * i + 3);
    const parts = channels === 1 ? [0.2126 * r + 0.7152 * g + 0.0722 * b] : [r, g, b];
    parts.forEach((v, c) => (values[channels * i + c] = Math.fround(face.darkest + (v / 255) * span)));
  }
  const same = bitmap.width === width && bitmap.height === height;
  const sizes = `from ${bitmap.width} × ${bitmap.height} to ${width} × ${height} pixels`;
  return { values, notice: same ? "" : `${file.name} was resized ${sizes}.` };
}

function fromCsv(text, name, face) {
  const lines = text.split(/\r?\n/).filter((line) => line.trim());
  const rows = lines.map((line) => line.split(/[,;\t]/).map((cell) => (cell.trim() ? Number(cell) : NaN)));
  const first = rows.findIndex((row) => row.every(Number.isFinite)); // a line of names may come first
  if (first < 0 || first > 1) {
    const kinds = face.image ? "an image, a CSV row or a .npy file" : "a CSV row or a .npy file";
    throw new Error(`${name} has no row of numbers: give ${kinds}.`);
  }
  const flat = rows.slice(first).flat();
  const picture = rows.slice(first).length > 1 && flat.length === face.dims;
  return picture ? { row: flat, count: 1 } : { row: rows[first], count: rows.length - first };
}

function fromNpy(bytes, name) {
  const view = new DataView(bytes.buffer);
  const wide = bytes[6] >= 2;
  const begin = wide ? 12 : 10;
  const length = wide ? view.getUint32(8, true) : view.getUint16(8, true);
  const header = new TextDecoder("latin1").decode(bytes.subarray(begin, begin + length));
  const kind = header.match(/'descr':\s*'([<>|=])([a-z]\d)'/);
  const shape = header.match(/'shape':\s*\(([^)]*)\)/)?.[1].split(",").filter((n) => n.trim()).map(Number);
  const read = READERS[kind?.[2]];
  if (!read || !shape || /'fortran_order':\s*True/.test(header)) {
    throw new Error(`${name} has a type or an order that is not read here: save it as C-ordered float64.`);
  }
  const size = Number(kind[2][1]);
  const all = shape.reduce((a, b) => a * b, 1);
  if (begin + length + all * size > bytes.length) throw new Error(`${name} is shorter than it says.`);
  const little = kind[1] !== ">";
  const at = (i) => read(view, begin + length + i * size, little);
  return { at, all, shape };
}

// The first row with as many numbers as the model wants.
function fitting(found, name, face) {
  const { dims } = face;
  const all = found.row ? found.row.length : found.all;
  const rows = found.row ? found.count : all / dims;
  const each = found.row ? all : found.shape.slice(1).reduce((a, b) => a * b, 1);
  if (all !== dims && each !== dims) {
    const said = found.shape ? `shape (${found.shape.join(", ")})` : `${all} numbers in a row`;
    throw new Error(`${name} has ${said}, but this model's rows have ${dims} numbers.`);
  }
  const at = found.row ? (i) => found.row[i] : found.at;
  const values = Float64Array.from({ length: dims }, (_, i) => Math.fround(at(i)));
  if (!values.every(Number.isFinite)) throw new Error(`${name} holds a value that is no finite number.`);
  return { values, notice: rows > 1 ? `${name} has ${rows} rows; the first is used.` : "" };
}
