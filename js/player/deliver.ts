/** Outputs of a run as the tensors of a session. */
import { writeBuffer } from "./buffers.js";
import { arrayOf, elements, type Type } from "./dtypes.js";
import type { Host } from "./host.js";
import type { Output } from "./feed.js";
import { asBytes } from "./source.js";
import { decodeStrings } from "./strings.js";
import { TensorImpl, type Tensor } from "./tensor.js";

/** Gives back what the core holds for tensors that nobody has any more. */
const forgotten = new FinalizationRegistry<() => void>((dispose) => dispose());

export function deliver(
  name: string,
  { data, type, dims, gpu }: Output,
  into: TensorImpl | null,
  host: Host,
  onGpu: boolean,
): Tensor | Promise<Tensor> {
  if (gpu !== undefined) {
    const [download, dispose] = [() => host.download(gpu), () => host.dispose(gpu)];
    const remote = {
      id: gpu,
      home: host.home,
      get buffer() {
        return host.bufferOf(gpu);
      },
      download,
      dispose,
    };
    if (!onGpu) forgotten.register(remote, dispose);
    return TensorImpl.onGpu(type, dims, remote, onGpu ? "gpu-buffer" : "cpu-pinned") as Tensor;
  }
  if (!into) return new TensorImpl(type, new (arrayOf(type))(data.buffer), dims) as unknown as Tensor;
  if (into.location === "gpu-buffer") return intoBuffer(name, data, type, dims, into);
  const target = asBytes(into.data);
  if (into.type !== type || !target || target.length !== data.length)
    throw new Error(
      `output "${name}": the tensor given is ${into.type} [${into.dims}], the result is ${type} [${dims}]`,
    );
  target.set(data);
  into.dims = dims;
  return into as unknown as Tensor;
}

/** The caller's buffer, which may be larger than what it is to hold. */
async function intoBuffer(
  name: string,
  data: Uint8Array<ArrayBuffer>,
  type: Type,
  dims: readonly number[],
  into: TensorImpl,
): Promise<Tensor> {
  if (into.type !== type || elements(into.dims) !== elements(dims) || data.length > into.gpuBuffer.size)
    throw new Error(
      `output "${name}": the tensor given is ${into.type} [${into.dims}] in a buffer of ${into.gpuBuffer.size} bytes, the result is ${type} [${dims}]`,
    );
  await writeBuffer(into, data);
  into.dims = dims;
  return into as unknown as Tensor;
}

export function deliverStrings(name: string, spans: Output, pool: Output, into: TensorImpl | null): Tensor {
  const strings = decodeStrings(spans.data, pool.data, `output "${name}"`);
  if (!into) return new TensorImpl("string", strings, spans.dims) as unknown as Tensor;
  const target = into.data;
  if (!Array.isArray(target) || target.length !== strings.length)
    throw new Error(
      `output "${name}": the tensor given is ${into.type} [${into.dims}], the result is string [${spans.dims}]`,
    );
  for (const [i, text] of strings.entries()) target[i] = text;
  into.dims = spans.dims;
  return into as unknown as Tensor;
}
