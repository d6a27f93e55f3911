/** Buffers of the page's device, for sessions that run elsewhere: their contents are copied. */
import { bytesOf, elements, type Type } from "./dtypes.js";
import { env } from "./env.js";
import type { TensorImpl } from "./tensor.js";

const align = (bytes: number): number => Math.ceil(bytes / 4) * 4;

/** The device that `env.webgpu.device` gives made the buffers: what else did is told by WebGPU's errors. */
async function scoped<T>(use: (device: GPUDevice) => Promise<T>): Promise<T> {
  const device = (await env.webgpu.device) as GPUDevice;
  device.pushErrorScope("validation");
  let wrong: GPUError | null = null;
  try {
    return await use(device);
  } finally {
    wrong = await device.popErrorScope();
    if (wrong) throw new Error(wrong.message);
  }
}

/** What is in the buffer of a tensor. */
export function readBuffer(tensor: TensorImpl): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = bytesOf(tensor.type as Type, elements(tensor.dims));
  return scoped(async (device) => {
    const copy = device.createBuffer({ size: align(bytes), usage: GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ });
    try {
      const encoder = device.createCommandEncoder();
      encoder.copyBufferToBuffer(tensor.gpuBuffer as unknown as GPUBuffer, 0, copy, 0, align(bytes));
      device.queue.submit([encoder.finish()]);
      await copy.mapAsync(GPUMapMode.READ);
      return new Uint8Array(copy.getMappedRange().slice(0, bytes));
    } finally {
      copy.destroy();
    }
  });
}

/** Puts bytes into the buffer of a tensor. */
export function writeBuffer(tensor: TensorImpl, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
  const padded = new Uint8Array(align(bytes.length));
  padded.set(bytes);
  return scoped(async ({ queue }) => queue.writeBuffer(tensor.gpuBuffer as unknown as GPUBuffer, 0, padded));
}
