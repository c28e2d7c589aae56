// The samples of an MP4 or QuickTime file: where each frame is, when it is shown, what decodes it.

const FIRST_BYTES = 8 << 20; // a `moov` box of more is not read

const nameAt = (view, at) => String.fromCharCode(view.getUint8(at), view.getUint8(at + 1), view.getUint8(at + 2), view.getUint8(at + 3));

/** The boxes between two positions: [{name, start, end}], `start` after the header. */
function boxes(view, from, to) {
  const found = [];
  for (let at = from; at + 8 <= to;) {
    let size = view.getUint32(at), header = 8;
    if (size === 1) { size = Number(view.getBigUint64(at + 8)); header = 16; }
    if (size === 0) size = to - at;
    if (size < header || at + size > to) break;
    found.push({ name: nameAt(view, at + 4), start: at + header, end: at + size });
    at += size;
  }
  return found;
}

function inside(view, box, ...path) {
  return path.reduce((outer, name) => outer && boxes(view, outer.start, outer.end).find((inner) => inner.name === name), box);
}

/** The `moov` box of a file as a DataView, or null. */
async function readMovie(blob) {
  for (let at = 0; at + 16 <= blob.size;) {
    const head = new DataView(await blob.slice(at, at + 16).arrayBuffer());
    let size = head.getUint32(0);
    if (size === 1) size = Number(head.getBigUint64(8));
    if (size === 0) size = blob.size - at;
    if (size < 8) return null;
    if (nameAt(head, 4) === "moov") return size > FIRST_BYTES ? null : new DataView(await blob.slice(at, at + size).arrayBuffer());
    at += size;
  }
  return null;
}

/** A table of a box: `count` at an offset, then rows of 32-bit numbers. */
function rows(view, box, columns, skip = 4) {
  if (!box) return [];
  const count = view.getUint32(box.start + skip), start = box.start + skip + 4;
  return Array.from({ length: Math.min(count, Math.floor((box.end - start) / (4 * columns))) }, (_, i) => Array.from({ length: columns }, (_, k) => view.getInt32(start + (i * columns + k) * 4)));
}

const hex = (n) => n.toString(16).padStart(2, "0");
const two = (n) => String(n).padStart(2, "0");

/** What a VideoDecoder is configured with, or null where the codec is not one of H.264, VP9 and AV1. */
function configOf(view, table) {
  const at = table.start + 8, entry = boxes(view, at, table.end)[0];
  if (!entry) return null;
  const width = view.getUint16(entry.start + 24), height = view.getUint16(entry.start + 26);
  const own = boxes(view, entry.start + 78, entry.end);
  const box = own.find(({ name }) => ["avcC", "vpcC", "av1C"].includes(name));
  if (!box) return null;
  const byte = (i) => view.getUint8(box.start + i);
  const description = new Uint8Array(view.buffer.slice(view.byteOffset + box.start, view.byteOffset + box.end));
  if (box.name === "avcC") return { codec: `avc1.${hex(byte(1))}${hex(byte(2))}${hex(byte(3))}`, description, codedWidth: width, codedHeight: height };
  if (box.name === "vpcC") return { codec: `vp09.${two(byte(4))}.${two(byte(5))}.${two(byte(6) >> 4)}`, codedWidth: width, codedHeight: height };
  const depth = byte(2) & 0x40 ? (byte(2) & 0x20 ? 12 : 10) : 8;
  return { codec: `av01.${byte(1) >> 5}.${two(byte(1) & 31)}${byte(2) & 0x80 ? "H" : "M"}.${two(depth)}`, description, codedWidth: width, codedHeight: height };
}

/** The samples in the order they are decoded: {offset, size, time, isKey}; `time` is when it is shown. */
function samplesOf(view, table) {
  const find = (name) => inside(view, table, name);
  const sizeBox = find("stsz"), chunkBox = find("co64") ?? find("stco");
  if (!sizeBox || !chunkBox) return [];
  const same = view.getUint32(sizeBox.start + 4), count = view.getUint32(sizeBox.start + 8);
  const sizeOf = (i) => same || view.getUint32(sizeBox.start + 12 + 4 * i);
  const isLong = chunkBox.name === "co64", chunks = view.getUint32(chunkBox.start + 4);
  const chunkOf = (i) => (isLong ? Number(view.getBigUint64(chunkBox.start + 8 + 8 * i)) : view.getUint32(chunkBox.start + 8 + 4 * i));
  const groups = rows(view, find("stsc"), 3), times = rows(view, find("stts"), 2), shifts = rows(view, find("ctts"), 2);
  const keys = find("stss") ? new Set(rows(view, find("stss"), 1).flat()) : null;
  const samples = [];
  for (let chunk = 0, group = 0; chunk < chunks && samples.length < count; chunk += 1) {
    while (group + 1 < groups.length && groups[group + 1][0] <= chunk + 1) group += 1;
    for (let i = 0, offset = chunkOf(chunk); i < (groups[group]?.[1] ?? 0) && samples.length < count; i += 1) {
      const number = samples.length, size = sizeOf(number);
      samples.push({ offset, size, time: 0, isKey: !keys || keys.has(number + 1) });
      offset += size;
    }
  }
  let number = 0, time = 0;
  for (const [many, delta] of times) for (let i = 0; i < many && number < samples.length; i += 1, time += delta) samples[number++].time = time;
  number = 0;
  for (const [many, shift] of shifts) for (let i = 0; i < many && number < samples.length; i += 1) samples[number++].time += shift;
  return samples;
}

/** Whether a track is shown as it is stored; phones rotate what they record. */
function isUpright(view, header) {
  const at = header.start + (view.getUint8(header.start) ? 48 : 36) + 4;
  return view.getInt32(at) > 0 && view.getInt32(at + 4) === 0 && view.getInt32(at + 12) === 0 && view.getInt32(at + 16) > 0;
}

/** The video track of a file: {config, samples, scale, duration}; null where it is not one that this reads. */
export async function readTrack(blob) {
  const view = await readMovie(blob);
  if (!view) return null;
  const movie = boxes(view, 0, view.byteLength)[0];
  for (const track of boxes(view, movie.start, movie.end).filter(({ name }) => name === "trak")) {
    const handler = inside(view, track, "mdia", "hdlr");
    if (!handler || nameAt(view, handler.start + 8) !== "vide") continue;
    const media = inside(view, track, "mdia", "mdhd"), table = inside(view, track, "mdia", "minf", "stbl"), header = inside(view, track, "tkhd");
    const description = table && inside(view, table, "stsd");
    const config = description && configOf(view, description), samples = table ? samplesOf(view, table) : [];
    if (!config || !samples.length || !header || !isUpright(view, header)) return null;
    return { config, samples, scale: view.getUint32(media.start + (view.getUint8(media.start) ? 20 : 12)) };
  }
  return null;
}
