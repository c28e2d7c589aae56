// A click on a picture from exported ONNX files, in Node.
//
//     npm install onnxruntime-node     or onnxruntime-web: WebAssembly alone, slower
//     node click.cjs FOLDER picture.ppm X Y mask.pgm
//
// The picture is a binary PPM of the model's input size (`image_size` in manifest.json).

const fs = require("node:fs");
const path = require("node:path");

function runtime() {
  for (const name of ["onnxruntime-node", "onnxruntime-web"]) {
    try {
      return require(name);
    } catch (error) {
      if (error.code !== "MODULE_NOT_FOUND") throw error;
    }
  }
  throw new Error("npm install onnxruntime-node, or onnxruntime-web");
}

function readPicture(ort, file, { size, mean, std }) {
  const bytes = fs.readFileSync(file);
  const header = /^P6\s+(\d+)\s+(\d+)\s+255\s/.exec(bytes.toString("latin1", 0, 64));
  const [height, width] = size;
  if (!header || Number(header[1]) !== width || Number(header[2]) !== height) {
    throw new Error(`${file} is not a binary PPM of ${width} x ${height}`);
  }
  const count = width * height;
  const pixels = new Float32Array(3 * count);
  for (let i = 0; i < count; i++) {
    for (let c = 0; c < 3; c++) {
      const byte = bytes[header[0].length + 3 * i + c];
      pixels[c * count + i] = (byte / 255 - mean[c]) / std[c];
    }
  }
  return new ort.Tensor("float32", pixels, [1, 3, height, width]);
}

async function main(folder, picture, x, y, target) {
  const ort = runtime();
  const manifest = JSON.parse(fs.readFileSync(path.join(folder, "manifest.json"), "utf8"));
  const read = (name) => fs.readFileSync(path.join(folder, manifest.graphs[name].file));
  const open = (name) => ort.InferenceSession.create(read(name), { executionProviders: ["cpu"] });
  const encoder = await open("image_encoder");
  const decoder = await open("decode_points");
  const features = await encoder.run({ image: readPicture(ort, picture, manifest.preprocessing) });
  const { masks, ious } = await decoder.run({
    ...features,
    points: new ort.Tensor("float32", Float32Array.of(Number(x), Number(y)), [1, 1, 2]),
    labels: new ort.Tensor("int64", BigInt64Array.of(1n), [1, 1]),
  });
  const best = [1, 2, 3].reduce((a, b) => (ious.data[b] > ious.data[a] ? b : a));
  const side = manifest.constants.mask_size;
  const mask = Buffer.alloc(side * side);
  mask.forEach((_, i) => (mask[i] = masks.data[best * side * side + i] > 0 ? 255 : 0));
  fs.writeFileSync(target, Buffer.concat([Buffer.from(`P5 ${side} ${side} 255\n`), mask]));
}

if (process.argv.length !== 7) {
  console.error("usage: node click.cjs FOLDER picture.ppm X Y mask.pgm");
  process.exit(2);
}
main(...process.argv.slice(2)).catch((error) => {
  console.error(`error: ${error.message}`);
  process.exit(1);
});
