/** A playground in a page of its own: the model and all files lie in the page's text (pyonnx_wasm/jupyter/page.html). */
import { messageOf } from "../../player/errors.js";
import type { Caller, Reply } from "../rpc.js";
import { bytesTensor } from "../wire.js";
import { hostOf } from "../ui/mount.js";
import { Playground } from "./playground.js";
import type { Spec } from "./panel.js";

interface PageSpec extends Spec {
  readonly model: { readonly sha256: string; readonly bytes: number };
}

interface File {
  readonly name: string;
  readonly bytes: number;
}

/** Shows the playground that the page holds, in its element `#playground`. */
export function start(css: string): void {
  const spec = JSON.parse(document.getElementById("spec")!.textContent!) as PageSpec;
  const style = document.createElement("style");
  style.textContent = css;
  const { send: _, ...host } = hostOf(new Embedded(), spec.model, spec.backends);
  const { signal } = new AbortController();
  const root = document.getElementById("playground")!;
  try {
    const playground = new Playground({ spec, host, signal, sync: false, onSync() {}, onSettled() {} });
    root.replaceChildren(style, playground.element);
  } catch (error) {
    root.textContent = messageOf(error);
  }
}

/** Answers as the kernel would that wrote the page. */
class Embedded implements Caller {
  readonly local = true;
  readonly #decoded = new Map<string, Promise<Uint8Array<ArrayBuffer>>>();

  async call(op: string, json: unknown = null): Promise<Reply> {
    const asked = json as { name?: string; sha256?: string; start: number; end: number };
    if (op === "asset") {
      const { name, bytes } = file(asked.name!);
      return { json: { sha256: name, bytes }, tensors: [], buffers: [] };
    }
    const { name, bytes } = file((op === "read" ? asked.sha256 : asked.name)!);
    let data = this.#decoded.get(name);
    if (!data) this.#decoded.set(name, (data = decode(name, bytes)));
    const whole = await data;
    const piece = op === "read" ? whole.subarray(asked.start, asked.end) : whole;
    // The text stays; what was read to its end is not kept a second time.
    if (op === "read" && asked.end === bytes) this.#decoded.delete(name);
    return { json: null, tensors: [bytesTensor(piece)], buffers: [piece] };
  }
}

function file(name: string): File {
  const found = parts(name)[0];
  if (!found) throw new Error(`the page holds no file "${name}"`);
  return { name, bytes: Number(found.dataset["bytes"]) };
}

function parts(name: string): HTMLElement[] {
  return [...document.querySelectorAll<HTMLElement>("script[data-file]")].filter((e) => e.dataset["file"] === name);
}

async function decode(name: string, bytes: number): Promise<Uint8Array<ArrayBuffer>> {
  const blobs = await Promise.all(
    parts(name).map(async ({ textContent }) => (await fetch(`data:;base64,${textContent!}`)).blob()),
  );
  const stream = new Blob(blobs).stream().pipeThrough(new DecompressionStream("gzip"));
  const data = new Uint8Array(await new Response(stream).arrayBuffer());
  if (data.length !== bytes) throw new Error(`"${name}" is damaged: ${data.length} of ${bytes} bytes`);
  return data;
}
