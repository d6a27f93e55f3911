/** The GPU: one device per worker, with all that the adapter has, and the pipelines made on it. */
import type { GpuSettings } from "../env.js";
import { messageOf } from "../errors.js";
import type { AdapterInfo } from "../types.js";

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

const WORKGROUPS = 128;
const STAGING_KEPT = 2 ** 24;

export type { GpuSettings } from "../env.js";

/** By the device that a page gave. */
const given = new WeakMap<GPUDevice, Gpu>();
const opened = new Map<string, Promise<Gpu>>();

export interface Pipeline {
  readonly kernel: string;
  readonly pipeline: GPUComputePipeline;
  readonly layout: GPUBindGroupLayout;
  /** Pipelines of the same form have the same layout. */
  readonly form: string;
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
  /** What shaders may need: features of the device and of the language. */
  readonly speaks: ReadonlySet<string>;
  /** Set once the device is gone. */
  lost: GpuError | undefined;
  /** The first error that no scope caught since it was last taken. */
  #failure: string | undefined;

  /** A buffer for results on their way out, between uses. */
  #staging: GPUBuffer | undefined;

  private constructor(
    readonly device: GPUDevice,
    readonly info: AdapterInfo,
    /** What buffers and bindings keep to: of the device, or what the page set below that. */
    readonly limits: Readonly<Record<(typeof LIMITS)[number], number>>,
  ) {
    const { wgslLanguageFeatures = [] } = (globalThis.navigator?.gpu ?? {}) as {
      wgslLanguageFeatures?: Iterable<string>;
    };
    this.speaks = new Set<string>([...info.features, ...wgslLanguageFeatures]);
    void device.lost.then(({ reason, message }) => {
      this.lost = new GpuError(
        `the GPU was lost (${message || reason}); its memory is gone with it: create the session again`,
      );
    });
    device.onuncapturederror = ({ error }) => {
      this.#failure ??= error.message;
    };
  }

  /** The device for these settings, requested on first use and again after a loss. Rejects with an error that says why there is none. */
  static async open(settings: GpuSettings = {}): Promise<Gpu> {
    if (settings.device) return Gpu.#over(settings.device as GPUDevice, settings);
    const key = JSON.stringify([settings.powerPreference, settings.forceFallbackAdapter, settings.limits]);
    const known = opened.get(key);
    if (known && !settings.adapter) {
      const gpu = await known;
      await gpu.#settled();
      if (!gpu.lost) return gpu;
      if (opened.get(key) === known) opened.delete(key);
      return Gpu.open(settings);
    }
    const asked = Gpu.#open(settings);
    opened.set(key, asked);
    try {
      return await asked;
    } catch (error) {
      opened.delete(key);
      throw error;
    }
  }

  /** Over a device that the page made, with what it asked for. */
  static #over(device: GPUDevice, { limits }: GpuSettings): Gpu {
    const known = given.get(device);
    if (known && !known.lost) return known;
    const { vendor, architecture, description, isFallbackAdapter } = device.adapterInfo;
    const features = FEATURES.filter((name) => device.features.has(name));
    const kept = LIMITS.map((name) => [name, Math.min(device.limits[name], limits?.[name] ?? Infinity)]);
    const info = { vendor, architecture, description, isFallbackAdapter, features };
    const gpu = new Gpu(device, info, Object.fromEntries(kept) as Gpu["limits"]);
    given.set(device, gpu);
    return gpu;
  }

  static async #open({ powerPreference, forceFallbackAdapter, limits, adapter: own }: GpuSettings): Promise<Gpu> {
    const gpu = globalThis.navigator?.gpu as GPU | undefined;
    if (!gpu) {
      const { isSecureContext } = globalThis as { isSecureContext?: boolean };
      const where = isSecureContext
        ? "this browser has no WebGPU"
        : isSecureContext === undefined
          ? "this runtime has no WebGPU"
          : "WebGPU needs a secure context: serve the page over https, or from localhost";
      throw new GpuError(where);
    }
    const adapter =
      (own as GPUAdapter | undefined) ??
      (await gpu.requestAdapter({
        ...(powerPreference && { powerPreference }),
        ...(forceFallbackAdapter && { forceFallbackAdapter }),
      }));
    if (!adapter) throw new GpuError("WebGPU has no adapter here: the GPU is blocked or its driver is missing");
    const requiredLimits = Object.fromEntries(
      LIMITS.map((name) => [name, Math.min(adapter.limits[name], limits?.[name] ?? Infinity)]),
    ) as Record<(typeof LIMITS)[number], number>;
    const requiredFeatures = FEATURES.filter((name) => adapter.features.has(name));
    let device: GPUDevice;
    try {
      device = await adapter.requestDevice({ requiredFeatures, requiredLimits });
    } catch (error) {
      throw new GpuError(`the GPU gives no device: ${messageOf(error)}`);
    }
    const { vendor, architecture, description, isFallbackAdapter } = adapter.info;
    const info = { vendor, architecture, description, isFallbackAdapter, features: requiredFeatures };
    return new Gpu(device, info, requiredLimits);
  }

  /** Waits until a loss that happened is known: `device.lost` is told of it by way of the GPU's process. */
  async #settled(): Promise<void> {
    this.device.pushErrorScope("validation");
    await this.device.popErrorScope().catch(() => {});
  }

  /** How many keep the adapter busy: WebGPU does not tell, but a fallback adapter is the processor. */
  get workgroups(): number {
    return this.info.isFallbackAdapter ? Math.min(navigator.hardwareConcurrency, WORKGROUPS) : WORKGROUPS;
  }

  /** Bytes that one buffer can have. */
  get maxBytes(): number {
    const { maxStorageBufferBindingSize, maxBufferSize } = this.limits;
    return Math.floor(Math.min(maxStorageBufferBindingSize, maxBufferSize) / 16) * 16;
  }

  /** Throws what went wrong since the last check. */
  check(what: string): void {
    if (this.lost) throw this.lost;
    const failure = this.#failure;
    this.#failure = undefined;
    if (failure) throw new GpuError(`${what}: ${failure}`);
  }

  /** Throws where shaders of this GPU cannot bind `count` buffers. */
  demandBindings(count: number, kernel: string): void {
    const most = this.limits.maxStorageBuffersPerShaderStage;
    if (count > most)
      throw new GpuError(`kernel ${kernel} binds ${count} buffers, this GPU binds at most ${most} in one shader`);
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
    device.pushErrorScope("validation"); // else the fault, which the pipeline tells, is the next model's too
    const module = device.createShaderModule({ code, label: kernel });
    device.popErrorScope().catch(() => {});
    try {
      const pipeline = await device.createComputePipelineAsync({
        label: kernel,
        layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
        compute: { module, entryPoint: "main" },
      });
      return { kernel, pipeline, layout, form: `${outputs}/${bindings}` };
    } catch (error) {
      if (this.lost) throw this.lost;
      const { messages } = await module.getCompilationInfo();
      const faults = messages
        .filter(({ type }) => type === "error")
        .map(({ lineNum, message }) => `line ${lineNum}: ${message}`);
      throw new GpuError(`kernel ${kernel}: the shader does not compile: ${faults.join("; ") || messageOf(error)}`);
    }
  }

  #layout(outputs: number, bindings: number): GPUBindGroupLayout {
    const key = `${outputs}/${bindings}`;
    let layout = this.#layouts.get(key);
    if (!layout) {
      const visibility = GPUShaderStage.COMPUTE;
      const entries: GPUBindGroupLayoutEntry[] = [
        { binding: 0, visibility, buffer: { type: "uniform", hasDynamicOffset: true } },
      ];
      for (let i = 0; i < bindings; i++)
        entries.push({ binding: i + 1, visibility, buffer: { type: i < outputs ? "storage" : "read-only-storage" } });
      layout = this.device.createBindGroupLayout({ entries });
      this.#layouts.set(key, layout);
    }
    return layout;
  }

  /**
   * The size of a buffer for `bytes`; throws an error that says for `what` it was when none can be so large.
   * What is bound `inParts` may be larger than a binding.
   */
  demand(bytes: number, what: string, inParts = false): number {
    const size = Math.ceil(Math.max(bytes, 16) / 16) * 16;
    const most = inParts ? this.limits.maxBufferSize : this.maxBytes;
    if (size > most) throw new GpuError(`${what} needs ${size} bytes in one buffer, this GPU binds at most ${most}`);
    return size;
  }

  /** A buffer for `bytes`; throws as `demand` does. */
  buffer(bytes: number, what: string, mapped = false, inParts = false): GPUBuffer {
    const size = this.demand(bytes, what, inParts);
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

  /** Submits `encoder` with copies of ranges of buffers, and gives their bytes: one submission and one wait for all. */
  async read(
    wanted: readonly { buffer: GPUBuffer; bytes: number; offset?: number }[],
    encoder = this.device.createCommandEncoder(),
  ): Promise<Uint8Array<ArrayBuffer>[]> {
    const { queue } = this.device;
    let at = 0;
    const places = wanted.map(({ bytes, offset = 0 }) => {
      const place = at;
      at += bytes && Math.ceil((bytes + (offset % 4)) / 8) * 8;
      return place;
    });
    if (at === 0) {
      queue.submit([encoder.finish()]);
      return wanted.map(() => new Uint8Array());
    }
    const staging = this.#takeStaging(at);
    wanted.forEach(({ buffer, bytes, offset = 0 }, i) => {
      const before = offset % 4;
      const size = Math.ceil((bytes + before) / 4) * 4;
      if (bytes) encoder.copyBufferToBuffer(buffer, offset - before, staging, places[i]!, size);
    });
    queue.submit([encoder.finish()]);
    try {
      await staging.mapAsync(GPUMapMode.READ, 0, at);
    } catch (error) {
      staging.destroy();
      await this.#settled();
      this.check("reading results");
      throw new GpuError(`reading results: ${messageOf(error)}`);
    }
    const all = staging.getMappedRange(0, at);
    const read = wanted.map(({ bytes, offset = 0 }, i) => {
      const place = places[i]! + (offset % 4);
      return new Uint8Array(all.slice(place, place + bytes));
    });
    staging.unmap();
    this.#giveStaging(staging);
    return read;
  }

  #takeStaging(bytes: number): GPUBuffer {
    const staging = this.#staging;
    this.#staging = undefined;
    if (staging && staging.size >= bytes) return staging;
    staging?.destroy();
    // Results that grew once, as a decoder's, will grow again.
    const ahead = Math.min(Math.ceil((staging?.size ?? 0) / 8) * 16, STAGING_KEPT);
    return this.device.createBuffer({
      size: Math.max(bytes, ahead),
      usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST,
      label: "results",
    });
  }

  #giveStaging(staging: GPUBuffer): void {
    if (this.#staging || staging.size > STAGING_KEPT) staging.destroy();
    else this.#staging = staging;
  }
}
