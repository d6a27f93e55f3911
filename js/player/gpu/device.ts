/** The GPU: one device per worker, with all that the adapter has, and the pipelines made on it. */
import { messageOf } from "../errors.js";

// What TypeScript's DOM library leaves out of WebGPU: the namespaces of flags.
declare global {
  const GPUBufferUsage: Readonly<
    Record<"MAP_READ" | "COPY_SRC" | "COPY_DST" | "UNIFORM" | "STORAGE" | "QUERY_RESOLVE", number>
  >;
  const GPUMapMode: Readonly<Record<"READ" | "WRITE", number>>;
  const GPUShaderStage: Readonly<Record<"COMPUTE", number>>;
}

/** The GPU cannot be used; the text says why and what to do. */
export class GpuError extends Error {
  override name = "GpuError";
}

/** What a page may want to know of the adapter. */
export interface AdapterInfo {
  readonly vendor: string;
  readonly architecture: string;
  readonly description: string;
  readonly features: readonly string[];
}

const FEATURES = ["shader-f16", "subgroups", "timestamp-query"] as const;
const LIMITS = [
  "maxBufferSize",
  "maxStorageBufferBindingSize",
  "maxStorageBuffersPerShaderStage",
  "maxComputeWorkgroupStorageSize",
  "maxComputeInvocationsPerWorkgroup",
  "maxComputeWorkgroupSizeX",
  "maxComputeWorkgroupSizeY",
  "maxComputeWorkgroupsPerDimension",
] as const;

let current: Promise<Gpu> | undefined;

export interface Pipeline {
  readonly kernel: string;
  readonly pipeline: GPUComputePipeline;
  readonly layout: GPUBindGroupLayout;
}

/** Which shader text a pipeline is made of. */
export interface PipelineSpec {
  readonly kernel: string;
  readonly outputs: number;
  readonly bindings: number;
  readonly code: string;
}

export class Gpu {
  readonly #pipelines = new Map<string, Promise<Pipeline>>();
  readonly #layouts = new Map<string, GPUBindGroupLayout>();
  /** Set once the device is gone. */
  lost: GpuError | undefined;
  /** The first error that no scope caught since it was last taken. */
  #failure: string | undefined;

  private constructor(
    readonly device: GPUDevice,
    readonly info: AdapterInfo,
  ) {
    void device.lost.then(({ reason, message }) => {
      this.lost = new GpuError(
        `the GPU was lost (${message || reason}); its memory is gone with it: create the session again`,
      );
      current = undefined;
    });
    device.onuncapturederror = ({ error }) => {
      this.#failure ??= error.message;
    };
  }

  /** The device, requested on first use and again after a loss. Rejects with an error that says why there is none. */
  static async open(powerPreference?: GPUPowerPreference): Promise<Gpu> {
    current ??= Gpu.#open(powerPreference);
    try {
      return await current;
    } catch (error) {
      current = undefined;
      throw error;
    }
  }

  static async #open(powerPreference?: GPUPowerPreference): Promise<Gpu> {
    const gpu = globalThis.navigator?.gpu as GPU | undefined;
    if (!gpu) {
      const where = globalThis.isSecureContext
        ? "this browser has no WebGPU"
        : "WebGPU needs a secure context: serve the page over https, or from localhost";
      throw new GpuError(where);
    }
    const adapter = await gpu.requestAdapter(powerPreference ? { powerPreference } : {});
    if (!adapter) throw new GpuError("WebGPU has no adapter here: the GPU is blocked or its driver is missing");
    const requiredLimits = Object.fromEntries(LIMITS.map((name) => [name, adapter.limits[name]]));
    const requiredFeatures = FEATURES.filter((name) => adapter.features.has(name));
    let device: GPUDevice;
    try {
      device = await adapter.requestDevice({ requiredFeatures, requiredLimits });
    } catch (error) {
      throw new GpuError(`the GPU gives no device: ${messageOf(error)}`);
    }
    const { vendor, architecture, description } = adapter.info;
    return new Gpu(device, { vendor, architecture, description, features: requiredFeatures });
  }

  get limits(): GPUSupportedLimits {
    return this.device.limits;
  }

  /** Throws what went wrong since the last check. */
  check(what: string): void {
    if (this.lost) throw this.lost;
    const failure = this.#failure;
    this.#failure = undefined;
    if (failure) throw new GpuError(`${what}: ${failure}`);
  }

  /** A pipeline, compiled once per text. */
  pipeline(spec: PipelineSpec): Promise<Pipeline> {
    const key = `${spec.outputs}/${spec.bindings}\n${spec.code}`;
    let found = this.#pipelines.get(key);
    if (!found) {
      found = this.#compile(spec);
      this.#pipelines.set(key, found);
      found.catch(() => this.#pipelines.delete(key));
    }
    return found;
  }

  async #compile({ kernel, outputs, bindings, code }: PipelineSpec): Promise<Pipeline> {
    const layout = this.#layout(outputs, bindings);
    const { device } = this;
    try {
      const module = device.createShaderModule({ code, label: kernel });
      const pipeline = await device.createComputePipelineAsync({
        label: kernel,
        layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
        compute: { module, entryPoint: "main" },
      });
      return { kernel, pipeline, layout };
    } catch (error) {
      if (this.lost) throw this.lost;
      throw new GpuError(`kernel ${kernel}: the shader does not compile: ${messageOf(error)}`);
    }
  }

  #layout(outputs: number, bindings: number): GPUBindGroupLayout {
    const key = `${outputs}/${bindings}`;
    let layout = this.#layouts.get(key);
    if (!layout) {
      const visibility = GPUShaderStage.COMPUTE;
      const entries: GPUBindGroupLayoutEntry[] = [{ binding: 0, visibility, buffer: { type: "uniform" } }];
      for (let i = 0; i < bindings; i++)
        entries.push({ binding: i + 1, visibility, buffer: { type: i < outputs ? "storage" : "read-only-storage" } });
      layout = this.device.createBindGroupLayout({ entries });
      this.#layouts.set(key, layout);
    }
    return layout;
  }

  /** A buffer for `bytes`; throws an error that says for `what` it was when no binding can be so large. */
  buffer(bytes: number, what: string, mapped = false): GPUBuffer {
    const size = Math.ceil(Math.max(bytes, 16) / 16) * 16;
    const most = Math.min(this.limits.maxStorageBufferBindingSize, this.limits.maxBufferSize);
    if (size > most) throw new GpuError(`${what} needs ${size} bytes in one buffer, this GPU binds at most ${most}`);
    const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST | GPUBufferUsage.COPY_SRC;
    try {
      return this.device.createBuffer({ size, usage, label: what, mappedAtCreation: mapped });
    } catch (error) {
      throw new GpuError(`out of GPU memory: ${what} needs ${size} bytes: ${messageOf(error)}`);
    }
  }

  /** Runs `make`, and throws when the GPU had not the memory, or found what it made invalid. */
  async guarded<T>(what: string, make: () => T): Promise<T> {
    this.device.pushErrorScope("out-of-memory");
    this.device.pushErrorScope("validation");
    let made: T;
    try {
      made = make();
    } finally {
      const [invalid, memory] = await Promise.all([this.device.popErrorScope(), this.device.popErrorScope()]);
      if (this.lost) throw this.lost;
      if (memory) throw new GpuError(`out of GPU memory: ${what}: ${memory.message}`);
      if (invalid) throw new GpuError(`${what}: ${invalid.message}`);
    }
    return made;
  }

  /** Writes any number of bytes to the start of a buffer. */
  write(buffer: GPUBuffer, bytes: Uint8Array): void {
    const whole = bytes.length & ~3;
    // Writes take multiples of 4 bytes, and no views of shared memory.
    const own = bytes.buffer instanceof ArrayBuffer ? (bytes as Uint8Array<ArrayBuffer>) : new Uint8Array(bytes);
    if (whole) this.device.queue.writeBuffer(buffer, 0, own, 0, whole);
    if (whole < bytes.length) {
      const rest = new Uint8Array(4);
      rest.set(own.subarray(whole));
      this.device.queue.writeBuffer(buffer, whole, rest);
    }
  }

  /** Copies the starts of buffers out; one submission and one wait for all. */
  async read(wanted: readonly { buffer: GPUBuffer; bytes: number }[]): Promise<Uint8Array<ArrayBuffer>[]> {
    let at = 0;
    const places = wanted.map(({ bytes }) => {
      const place = at;
      at += Math.ceil(bytes / 8) * 8;
      return place;
    });
    if (at === 0) return wanted.map(() => new Uint8Array());
    const staging = this.device.createBuffer({ size: at, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
    try {
      const encoder = this.device.createCommandEncoder();
      wanted.forEach(({ buffer, bytes }, i) => {
        if (bytes) encoder.copyBufferToBuffer(buffer, 0, staging, places[i] as number, Math.ceil(bytes / 4) * 4);
      });
      this.device.queue.submit([encoder.finish()]);
      try {
        await staging.mapAsync(GPUMapMode.READ);
      } catch (error) {
        this.check("reading results");
        throw this.lost ?? new GpuError(`reading results: ${messageOf(error)}`);
      }
      const all = staging.getMappedRange();
      return wanted.map(
        ({ bytes }, i) => new Uint8Array(all.slice(places[i] as number, (places[i] as number) + bytes)),
      );
    } finally {
      staging.destroy();
    }
  }
}
