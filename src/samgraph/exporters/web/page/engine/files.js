// Files made by hand: PNG with one byte per pixel, and ZIP without compression.

const CRC = Uint32Array.from({ length: 256 }, (_, n) => {
  let value = n;
  for (let k = 0; k < 8; k += 1) value = value & 1 ? 0xedb88320 ^ (value >>> 1) : value >>> 1;
  return value >>> 0;
});

function crc32(bytes, before = 0) {
  let value = ~before;
  for (let i = 0; i < bytes.length; i += 1) value = CRC[(value ^ bytes[i]) & 255] ^ (value >>> 8);
  return ~value >>> 0;
}

const text = new TextEncoder();

async function deflated(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new CompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function chunk(name, data) {
  const out = new Uint8Array(12 + data.length), view = new DataView(out.buffer);
  view.setUint32(0, data.length);
  out.set(text.encode(name), 4);
  out.set(data, 8);
  view.setUint32(8 + data.length, crc32(out.subarray(4, 8 + data.length)));
  return out;
}

/** The 256 colours of DAVIS masks: the bits of the index go to red, green and blue in rotation. */
function davisPalette() {
  const table = new Uint8Array(768);
  for (let index = 0; index < 256; index += 1) {
    for (let bit = 0; bit < 8; bit += 1) {
      for (let channel = 0; channel < 3; channel += 1) {
        table[index * 3 + channel] |= ((index >> (3 * bit + channel)) & 1) << (7 - bit);
      }
    }
  }
  return table;
}

/** A PNG of bytes [H, W]: grey, or with the palette of DAVIS. */
export async function png(bytes, [height, width], { palette = false } = {}) {
  const rows = new Uint8Array(height * (width + 1));
  for (let y = 0; y < height; y += 1) rows.set(bytes.subarray(y * width, (y + 1) * width), y * (width + 1) + 1);
  const header = new Uint8Array(13), view = new DataView(header.buffer);
  view.setUint32(0, width);
  view.setUint32(4, height);
  header.set([8, palette ? 3 : 0, 0, 0, 0], 8);
  const parts = [Uint8Array.of(137, 80, 78, 71, 13, 10, 26, 10), chunk("IHDR", header)];
  if (palette) parts.push(chunk("PLTE", davisPalette()));
  parts.push(chunk("IDAT", await deflated(rows)), chunk("IEND", new Uint8Array(0)));
  return new Blob(parts, { type: "image/png" });
}

/** A ZIP of files: [{name, blob}]. */
export async function zip(files) {
  const parts = [], directory = [];
  let offset = 0, length = 0;
  for (const { name, blob } of files) {
    const data = new Uint8Array(await blob.arrayBuffer()), title = text.encode(name);
    const fields = [20, 0x800, 0, 0, 0x21, crc32(data), data.length, data.length, title.length, 0];
    const local = record(0x04034b50, fields, title);
    const central = record(0x02014b50, [20, ...fields, 0, 0, 0, 0, offset], title);
    parts.push(local, data);
    directory.push(central);
    offset += local.length + data.length;
    length += central.length;
  }
  const end = new DataView(new ArrayBuffer(22));
  end.setUint32(0, 0x06054b50, true);
  end.setUint16(8, files.length, true);
  end.setUint16(10, files.length, true);
  end.setUint32(12, length, true);
  end.setUint32(16, offset, true);
  return new Blob([...parts, ...directory, end.buffer], { type: "application/zip" });
}

/** A header of a ZIP: a signature, numbers of two bytes (sizes, sums and offsets have four), a name. */
function record(signature, fields, title) {
  const central = signature === 0x02014b50, sizes = central ? [46, [6, 7, 8, 14, 15]] : [30, [5, 6, 7]];
  const out = new Uint8Array(sizes[0] + title.length), view = new DataView(out.buffer);
  view.setUint32(0, signature, true);
  let at = 4;
  fields.forEach((value, i) => {
    const isLong = sizes[1].includes(i);
    if (isLong) view.setUint32(at, value, true);
    else view.setUint16(at, value, true);
    at += isLong ? 4 : 2;
  });
  out.set(title, at);
  return out;
}
