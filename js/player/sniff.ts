/** Tells ONNX and GGUF models, which have to be compiled first, from compiled ones. */
import { messageOf } from "./errors.js";
import { absolute, asBytes, type ModelSource } from "./source.js";

/** Whether these are the first bytes of a GGUF file. */
export function isGguf(start: Uint8Array): boolean {
  return String.fromCharCode(...start.subarray(0, 4)) === "GGUF";
}

const HEAD_BYTES = 16;

/** Whether these are the first bytes of a GGUF file, or an onnx ModelProto: ir_version (a small varint), then another of its fields. */
export function isModel(start: Uint8Array): boolean {
  if (isGguf(start)) return true;
  const fields = [0x12, 0x1a, 0x22, 0x28, 0x32, 0x3a, 0x42];
  return start[0] === 0x08 && (start[1] ?? 0) < 0x20 && fields.includes(start[2] ?? 0);
}

/** Whether a load failed because what lies behind an address turned out to be such a model. */
export function wasRaw(source: ModelSource, error: unknown): boolean {
  return (typeof source === "string" || source instanceof URL) && /this is an? (ONNX|GGUF) file/.test(messageOf(error));
}

/** Looks at the first bytes without using the source up; of an address only the name is looked at. */
export async function sniffed(source: ModelSource): Promise<{ source: ModelSource; raw: boolean }> {
  if (typeof source === "string" || source instanceof URL)
    return { source, raw: /\.(onnx|gguf)$/i.test(new URL(absolute(source)).pathname) };
  if (source instanceof Blob)
    return { source, raw: isModel(new Uint8Array(await source.slice(0, HEAD_BYTES).arrayBuffer())) };
  if (source instanceof Response) {
    if (!source.ok || source.bodyUsed || !source.body) return { source, raw: false };
    const stream = source.clone().body as ReadableStream<Uint8Array>;
    return { source, raw: isModel(await head(stream)) };
  }
  if (source instanceof ReadableStream) {
    if (source.locked) return { source, raw: false };
    const [copy, rest] = source.tee();
    return { source: rest, raw: isModel(await head(copy)) };
  }
  return { source, raw: isModel(asBytes(source)?.subarray(0, HEAD_BYTES) ?? new Uint8Array()) };
}

/** The first bytes of one branch of a stream, which is then given up; errors are left to whoever reads the other. */
async function head(stream: ReadableStream<Uint8Array>): Promise<Uint8Array> {
  const reader = stream.getReader();
  const start: number[] = [];
  try {
    while (start.length < HEAD_BYTES) {
      const { done, value } = await reader.read();
      if (done || !(value instanceof Uint8Array)) break;
      start.push(...value.subarray(0, HEAD_BYTES));
    }
  } catch {
    return new Uint8Array();
  }
  // Settles only when the other branch is done.
  void reader.cancel().catch(() => {});
  return Uint8Array.from(start);
}
