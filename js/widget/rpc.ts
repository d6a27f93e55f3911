/** Calls between page and kernel over a widget's custom messages: pyonnx_wasm/jupyter/WIRE.md. */
import { messageOf } from "../player/errors.js";
import {
  Assembler,
  bytesTensor,
  encode,
  WINDOW,
  WireError,
  type Frame,
  type Message,
  type WireTensor,
} from "./wire.js";
import { Stalls } from "./stall.js";

/** What a widget's model has, in anywidget and in hosts like it. */
export interface AnyModel {
  send(content: unknown, callbacks?: unknown, buffers?: ArrayBuffer[] | ArrayBufferView[]): void;
  on(event: string, callback: (...args: any[]) => void): void;
  off(event?: string | null, callback?: ((...args: any[]) => void) | null): void;
  get?(key: string): unknown;
  set?(key: string, value: unknown): void;
  save_changes?(): void;
  /** JupyterLab's, where the host hands it on. */
  readonly widget_manager?: unknown;
}

/** A failure in the kernel, with the name of its exception. */
export class RemoteError extends Error {
  constructor(name: string, message: string) {
    super(message);
    this.name = name;
  }
}

/** What a call gives; `buffers` are the bytes of the tensors, valid for as long as they are kept. */
export interface Reply {
  readonly json: unknown;
  readonly tensors: readonly WireTensor[];
  readonly buffers: Uint8Array[];
}

/** A call from the kernel. `signal` aborts when the kernel gives it up. */
export interface Request extends Reply {
  readonly op: string;
  readonly signal: AbortSignal;
  progress(json: unknown): void;
}

/** What a handler answers: bytes and tensors travel beside the JSON value. */
export interface Answer {
  readonly json?: unknown;
  readonly buffers?: readonly (ArrayBufferView | WireTensor)[];
}

export type Handler = (request: Request) => Promise<Answer | void> | Answer | void;

export interface CallOptions {
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((progress: unknown) => void) | undefined;
}

/** What answers calls: a kernel, or a page that holds what they ask for. */
export interface Caller {
  /** Its files are at hand: browsers keep no copy. */
  readonly local?: boolean;
  call(
    op: string,
    json?: unknown,
    buffers?: readonly (ArrayBufferView | WireTensor)[],
    options?: CallOptions,
  ): Promise<Reply>;
}

export interface RpcOptions {
  /** Called when the kernel refuses this page, with the reason. */
  readonly onRefused?: (reason: string) => void;
  /** Called at each frame from the kernel. */
  readonly onAlive?: () => void;
  /** Called when the kernel says whether it is this page that it calls. */
  readonly onActive?: (active: boolean) => void;
  /** Called now and then while the kernel answers nothing although a call waits. */
  readonly onStall?: (seconds: number) => void;
}

interface Pending {
  readonly message: Message;
  resolve(reply: Reply): void;
  reject(error: Error): void;
  onProgress: ((progress: unknown) => void) | undefined;
}

interface Outgoing {
  readonly frames: Iterator<Frame>;
  acked: number;
  sent: number;
}

interface Serving {
  readonly controller: AbortController;
  /** When it was last known to go on, in milliseconds. */
  at: number;
}

const TAB = "pyonnx_wasm.tab";
const LOAD = Symbol.for("pyonnx_wasm.load");

export class Rpc implements Caller {
  /** Names this page to the kernel. */
  readonly peer = randomId();
  readonly #model: AnyModel;
  /** Reaches a kernel in a worker of this page also while a cell waits. */
  readonly #channel: BroadcastChannel | undefined;
  readonly #options: RpcOptions;
  readonly #handlers = new Map<string, Handler>();
  readonly #pending = new Map<string, Pending>();
  readonly #serving = new Map<string, Serving>();
  readonly #outgoing = new Map<string, Outgoing>();
  readonly #assembler = new Assembler();
  readonly #stalls = new Stalls({
    ping: (id) => this.#send({ kind: "ping", id, peer: this.peer }),
    again: (id) => this.#again(id),
    giveUp: (id) => this.#settle(id, ({ message, reject }) => reject(unanswered(message.op))),
    onStall: (seconds) => this.#options.onStall?.(seconds),
  });
  readonly #listen = (content: unknown, buffers?: readonly unknown[]) => this.#receive(content, buffers ?? []);
  readonly #leave = () => this.#send({ kind: "bye", id: "bye", peer: this.peer });
  #next = 1;
  #info: unknown = null;
  #closed: Error | undefined;
  /** The kernel has closed the widget: what is sent now, it reports to the user as for no comm. */
  #cut = false;
  readonly #onCut = (): void => void (this.#cut = true);

  constructor(model: AnyModel, options: RpcOptions = {}) {
    this.#model = model;
    const channel = model.get?.("_channel");
    if (typeof channel === "string" && channel) this.#channel = new BroadcastChannel(channel);
    this.#options = options;
    model.on("msg:custom", this.#listen);
    model.on("comm:close", this.#onCut);
    globalThis.addEventListener?.("pagehide", this.#leave);
    this.#hello();
  }

  /**
   * Calls `op` in the kernel. A call that got lost is sent again, so `op` may be done twice.
   *
   * `buffers` must not change before the call is done. Rejects with RemoteError when the operation failed or is never answered,
   * WireError when the answer is malformed, the signal's reason when it aborts.
   */
  call(
    op: string,
    json: unknown = null,
    buffers: readonly (ArrayBufferView | WireTensor)[] = [],
    { signal, onProgress }: CallOptions = {},
  ): Promise<Reply> {
    if (this.#closed) return Promise.reject(this.#closed);
    if (signal?.aborted) return Promise.reject(signal.reason);
    const id = `b${this.#next++}-${this.peer}`;
    return new Promise((resolve, reject) => {
      const onAbort = (): void => {
        if (!this.#forget(id)) return;
        this.#send({ kind: "cancel", id, peer: this.peer });
        reject(signal?.reason);
      };
      signal?.addEventListener("abort", onAbort);
      const done = (): void => signal?.removeEventListener("abort", onAbort);
      const message = { kind: "call", id, peer: this.peer, op, json, tensors: buffers.map(tensorOf) } as const;
      this.#pending.set(id, {
        message,
        resolve: (reply) => (done(), resolve(reply)),
        reject: (error) => (done(), reject(error)),
        onProgress,
      });
      this.#stalls.add(id);
      this.#post(message);
    });
  }

  /** Answers the kernel's calls of `op`; what `fn` throws reaches the caller. */
  handle(op: string, fn: Handler): void {
    this.#handlers.set(op, fn);
  }

  /** Ends all calls and tells the kernel that this page is gone. */
  close(reason = "the connection to the kernel was closed"): void {
    if (this.#closed) return;
    this.#leave();
    this.#stalls.stop();
    this.#closed = new RemoteError("Closed", reason);
    this.#model.off("msg:custom", this.#listen);
    this.#model.off("comm:close", this.#onCut);
    this.#channel?.close();
    globalThis.removeEventListener?.("pagehide", this.#leave);
    for (const { reject } of this.#pending.values()) reject(this.#closed);
    for (const { controller } of this.#serving.values()) controller.abort(this.#closed);
    this.#pending.clear();
    this.#serving.clear();
    this.#outgoing.clear();
    this.#assembler.clear();
  }

  /** Says hello again, with what this page is able to do. */
  announce(info: unknown): void {
    this.#info = info;
    this.#hello();
  }

  #hello(): void {
    const json = { tab: tabId(), load: loadId(), info: this.#info };
    this.#send({ kind: "hello", id: `hello-${this.peer}`, peer: this.peer, json });
  }

  #receive(content: unknown, buffers: readonly unknown[]): void {
    const peer = isFields(content) ? content["peer"] : undefined;
    if (typeof peer === "string" && peer !== this.peer && peer !== "") return;
    this.#options.onAlive?.();
    this.#stalls.heard();
    if (isFields(content) && typeof content["id"] === "string") this.#stalls.moved(content["id"]);
    try {
      const message = this.#assembler.push(content, buffers.map(bytesOfBuffer));
      if (message) this.#take(message);
      else {
        const { id, seq } = content as { id: string; seq: number };
        this.#send({ kind: "ack", id, peer: this.peer, seq });
      }
    } catch (error) {
      this.#refuse(isFields(content) ? content : {}, error instanceof Error ? error : new Error(String(error)));
    }
  }

  #take(message: Message): void {
    const { kind, id } = message;
    switch (kind) {
      case "call":
        if (message.peer === this.peer) void this.#serve(message);
        return;
      case "result": {
        const reply = { json: message.json, tensors: message.tensors ?? [], buffers: dataOf(message) };
        return this.#settle(id, (pending) => pending.resolve(reply));
      }
      case "error": {
        const { name, message: text } = message.error as { name: string; message: string };
        if (id === `hello-${this.peer}`) this.#options.onRefused?.(text);
        return this.#settle(id, (pending) => pending.reject(new RemoteError(name, text)));
      }
      case "progress":
        this.#pending.get(id)?.onProgress?.(message.json);
        return;
      case "ack": {
        const out = this.#outgoing.get(id);
        if (!out || message.seq !== out.acked || out.acked >= out.sent) return;
        out.acked++;
        return this.#more(id, out);
      }
      case "cancel":
        this.#outgoing.delete(id);
        this.#assembler.drop(this.peer, id);
        this.#serving.get(id)?.controller.abort(new RemoteError("AbortError", "the kernel gave the call up"));
        this.#serving.delete(id);
        return;
      case "who":
        return this.#hello();
      case "ping": {
        const active = isFields(message.json) ? message.json["active"] : undefined;
        if (typeof active === "boolean") this.#options.onActive?.(active);
        return this.#send({ kind: "pong", id, peer: this.peer, json: { serving: this.#served() } });
      }
      case "pong": {
        const serving = isFields(message.json) ? message.json["serving"] : undefined;
        return this.#stalls.answered(id, isFields(serving) ? new Set(Object.keys(serving)) : undefined);
      }
    }
  }

  /** The kernel's calls that this page knows, with the seconds since they went on. */
  #served(): Record<string, number> {
    const served: Record<string, number> = {};
    for (const id of [...this.#outgoing.keys(), ...this.#assembler.arriving()]) served[id] = 0;
    const now = performance.now();
    for (const [id, { at }] of this.#serving) served[id] = (now - at) / 1000;
    return served;
  }

  /** Sends a call once more; what came of it until now is dropped on both sides. */
  #again(id: string): void {
    const message = this.#pending.get(id)?.message;
    if (!message) return;
    this.#outgoing.delete(id);
    this.#assembler.drop(this.peer, id);
    this.#send({ kind: "cancel", id, peer: this.peer });
    this.#post(message);
  }

  async #serve(message: Message): Promise<void> {
    const { id, op = "" } = message;
    const { peer } = this;
    const controller = new AbortController();
    const serving: Serving = { controller, at: performance.now() };
    this.#serving.set(id, serving);
    const mine = (): boolean => this.#serving.get(id) === serving;
    const progress = (json: unknown): void => {
      serving.at = performance.now();
      if (mine()) this.#send({ kind: "progress", id, peer, json });
    };
    try {
      const handler = this.#handlers.get(op);
      if (!handler) throw new RemoteError("LookupError", `the page has no operation "${op.slice(0, 40)}"`);
      const tensors = message.tensors ?? [];
      const request = {
        op,
        json: message.json,
        tensors,
        buffers: dataOf(message),
        signal: controller.signal,
        progress,
      };
      const answer = (await handler(request)) ?? {};
      const { json = null, buffers = [] } = answer;
      if (mine()) this.#post({ kind: "result", id, peer, json, tensors: buffers.map(tensorOf) });
    } catch (error) {
      const name = error instanceof Error ? error.name : "Error";
      if (mine()) this.#send({ kind: "error", id, peer, error: { name, message: messageOf(error) } });
    } finally {
      if (mine()) this.#serving.delete(id);
    }
  }

  #refuse(content: Readonly<Record<string, unknown>>, error: Error): void {
    const { kind, id } = content;
    if (typeof id !== "string")
      return console.warn(`pyonnx_wasm: a message from the kernel was refused: ${error.message}`);
    this.#assembler.drop(this.peer, id);
    if (kind === "call") {
      const { name, message } = error;
      this.#send({ kind: "error", id: id.slice(0, 128), peer: this.peer, error: { name, message } });
    } else if (this.#pending.has(id)) {
      this.#send({ kind: "cancel", id, peer: this.peer });
      this.#settle(id, (pending) => pending.reject(error));
    } else if (kind === "who") this.#options.onRefused?.(error.message);
  }

  #settle(id: string, how: (pending: Pending) => void): void {
    const pending = this.#pending.get(id);
    if (pending && this.#forget(id)) how(pending);
  }

  #forget(id: string): boolean {
    this.#stalls.done(id);
    this.#outgoing.delete(id);
    this.#assembler.drop(this.peer, id);
    return this.#pending.delete(id);
  }

  #post(message: Message): void {
    const out: Outgoing = { frames: encode(message), acked: 0, sent: 0 };
    this.#outgoing.set(message.id, out);
    this.#more(message.id, out);
  }

  #more(id: string, out: Outgoing): void {
    while (out.sent - out.acked < WINDOW) {
      const { value } = out.frames.next();
      if (!value) return;
      out.sent++;
      if (value.header["last"]) this.#outgoing.delete(id);
      this.#write(value);
    }
  }

  #send(message: Message): void {
    if (this.#closed) return;
    for (const frame of encode(message)) this.#write(frame);
  }

  #write({ header, buffers }: Frame): void {
    if (this.#cut) return;
    try {
      if (this.#channel) this.#channel.postMessage([JSON.stringify(header), ...buffers.map(exact)]);
      else this.#model.send(header, undefined, buffers.map(exact));
    } catch (error) {
      console.warn(`pyonnx_wasm: a message to the kernel was lost: ${messageOf(error)}`);
    }
  }
}

function isFields(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function tensorOf(data: ArrayBufferView | WireTensor): WireTensor {
  return ArrayBuffer.isView(data) ? bytesTensor(data) : data;
}

function dataOf({ tensors = [] }: Message): Uint8Array[] {
  return tensors.map(({ data }) => data);
}

/** Hosts hand over DataViews, typed arrays or ArrayBuffers. */
function bytesOfBuffer(buffer: unknown): Uint8Array {
  if (ArrayBuffer.isView(buffer)) return new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength);
  if (buffer instanceof ArrayBuffer) return new Uint8Array(buffer);
  throw new WireError("a buffer of the frame is not binary");
}

/** Some hosts send the whole ArrayBuffer behind a view. */
function exact(bytes: Uint8Array): ArrayBuffer {
  const whole = bytes.byteLength === bytes.buffer.byteLength && bytes.buffer instanceof ArrayBuffer;
  return whole ? (bytes.buffer as ArrayBuffer) : (bytes.slice().buffer as ArrayBuffer);
}

function unanswered(op = ""): RemoteError {
  const cure = "run the cell again, or restart the kernel and reload the page";
  return new RemoteError("Unanswered", `the kernel is there, but does not answer "${op}": ${cure}`);
}

/** Names this page from one load to the next; all widgets in it share it. */
function loadId(): string {
  const page = globalThis as { [LOAD]?: string };
  return (page[LOAD] ??= randomId());
}

/** Names this tab, also after a reload; empty where the page may store nothing. */
function tabId(): string {
  try {
    const found = sessionStorage.getItem(TAB);
    if (found) return found;
    const made = randomId();
    sessionStorage.setItem(TAB, made);
    return made;
  } catch {
    return "";
  }
}

/** `crypto.randomUUID` exists only in secure contexts. */
function randomId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (b) => b.toString(16).padStart(2, "0")).join("");
}
