/** Checks js/widget/ui/preprocess.ts, bundled into the file named first, against the vectors in the file named second. */
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { prepare } = await import(pathToFileURL(process.argv[2]).href);
const { pictures, cases } = JSON.parse(readFileSync(process.argv[3], "utf8"));
const failures = [];
for (const { name, picture, spec, dims, hex } of cases) {
  const { shape, hex: pixels } = pictures[picture];
  const [height, width, channels] = shape;
  const { tensor } = prepare({ width, height, channels, data: new Uint8Array(Buffer.from(pixels, "hex")) }, spec);
  const { buffer, byteOffset, byteLength } = tensor.data;
  const got = Buffer.from(buffer, byteOffset, byteLength).toString("hex");
  if (tensor.dims.join() !== dims.join()) failures.push(`${name}: [${tensor.dims}] is not [${dims}]`);
  else if (got !== hex) failures.push(`${name}: other numbers`);
}
console.log(failures.length ? failures.join("\n") : `${cases.length} cases`);
process.exit(failures.length ? 1 : 0);
