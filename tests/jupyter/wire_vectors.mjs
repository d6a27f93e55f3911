/** Checks js/widget/wire.ts, bundled into the file named first, against the vectors in the file named second; prints what differs. */
import { readFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import { pathToFileURL } from "node:url";

const { Assembler, encode } = await import(pathToFileURL(process.argv[2]).href);
const { messages, refused } = JSON.parse(readFileSync(process.argv[3], "utf8"));
const hex = (bytes) => Buffer.from(bytes).toString("hex");
const bytes = (text) => new Uint8Array(Buffer.from(text, "hex"));
const failures = [];
const same = (name, got, want) => {
  if (!isDeepStrictEqual(got, want)) failures.push(`${name}: ${JSON.stringify(got)} is not ${JSON.stringify(want)}`);
};
const plain = ({ tensors, json, ...rest }, like) => ({
  ...rest,
  ...("json" in like && { json }),
  ...(tensors && { tensors: tensors.map(({ data, ...tensor }) => ({ ...tensor, hex: hex(data) })) }),
});

for (const { name, frame_bytes, message, frames } of messages) {
  const tensors = message.tensors?.map(({ hex, ...tensor }) => ({ ...tensor, data: bytes(hex) }));
  const sent = [...encode({ ...message, tensors }, frame_bytes)];
  same(`${name}, sent`, sent.map(({ header, buffers }) => ({ header, buffers: buffers.map(hex) })), frames);
  const assembler = new Assembler();
  const got = frames.map(({ header, buffers }) => assembler.push(header, buffers.map(bytes)));
  same(`${name}, before the last frame`, got.slice(0, -1).filter(Boolean), []);
  same(`${name}, received`, plain(got.at(-1), message), message);
}
for (const { name, frames, error } of refused) {
  const assembler = new Assembler();
  let text = "nothing was refused";
  try {
    for (const { header, buffers } of frames) assembler.push(header, buffers.map(bytes));
  } catch (refusal) {
    text = refusal.name === "WireError" ? refusal.message : `${refusal.name}: ${refusal.message}`;
  }
  if (!new RegExp(error).test(text)) failures.push(`${name}: ${text}`);
}
console.log(failures.length ? failures.join("\n") : `${messages.length} messages, ${refused.length} refused`);
process.exit(failures.length ? 1 : 0);
