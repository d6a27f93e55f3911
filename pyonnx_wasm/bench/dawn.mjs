// A module's functions in a Node.js process, on Dawn: reads calls from stdin and answers them on stdout, a line of JSON each.
// Arguments: the addresses of the npm package webgpu and of the module, then Dawn's options.

import { Console } from "node:console";
import { openAsBlob } from "node:fs";
import { availableParallelism } from "node:os";
import { createInterface } from "node:readline";

globalThis.console = new Console(process.stderr);

const [dawn, module, ...options] = process.argv.slice(2);
const { create, globals } = await import(dawn);
Object.assign(globalThis, globals);
const navigator = { gpu: create(options), hardwareConcurrency: availableParallelism(), userAgent: "Node.js" };
Object.defineProperty(globalThis, "navigator", { value: navigator, configurable: true });

// Node.js gives native code no views of shared memory, in which onnxruntime-web has its arrays.
const { writeBuffer } = GPUQueue.prototype;
GPUQueue.prototype.writeBuffer = function (buffer, offset, data, ...range) {
  const shared = ArrayBuffer.isView(data) && data.buffer instanceof SharedArrayBuffer;
  return writeBuffer.call(this, buffer, offset, shared ? data.slice() : data, ...range);
};

const { fetch } = globalThis;
globalThis.fetch = async (address, init) => {
  const url = new URL(address);
  if (url.protocol !== "file:") return fetch(address, init);
  const file = await openAsBlob(url);
  return new Response(file, { headers: { "Content-Length": String(file.size) } });
};

const page = await import(module);

/** The adapter that both sides get; null where there is none. */
async function adapter() {
  const found = await navigator.gpu.requestAdapter();
  if (!found) return null;
  const { vendor, architecture, device, isFallbackAdapter } = found.info;
  return { name: [vendor, architecture, device].filter(Boolean).join(" "), isFallbackAdapter };
}

for await (const line of createInterface({ input: process.stdin })) {
  const [name, args] = JSON.parse(line);
  let answer;
  try {
    answer = { result: (await (name === "adapter" ? adapter : page[name])(...args)) ?? null };
  } catch (error) {
    answer = { error: String(error?.message ?? error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
