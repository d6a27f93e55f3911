/** The script of every worker: an engine, one of its threads, or what another module serves, as the first message says. */
import type { Answers, Asked } from "./asked.js";
import { terminated } from "./ending.js";
import { returned } from "./copies.js";
import { CoreLost, messageOf } from "./errors.js";
import { Engine, type Widen } from "./engine.mjs";
import { gpuIsAt } from "./gpu-module.js";
import type { First, Remote, Reply, Request } from "./messages.js";
import type { Watch } from "./operators.js";
import type { Places } from "./places.js";
import type { Progress } from "./types.js";
import { builtin } from "./server.js";
import { portSource, urlSource, type Source } from "./source.js";
import type { Said, ThreadLike, ThreadStart } from "./core.js";
import { serveThread } from "./thread.js";

type Widened = Extract<Request, { op: "core64" }>;

/** The worker's side of its port: global in pages' workers. */
const port = builtin("worker_threads")?.parentPort ?? (globalThis as unknown as MessagePort);

port.onmessage = ({ data }: MessageEvent<First>): void => {
  if (data.op === "thread") void serveThread(data, (said) => port.postMessage(said)).then(end);
  else if (data.op === "serve") void serveModule(data.script);
  else void serveEngine(data);
};

/** A thread's work is done; its pool is gone. */
function end(): void {
  (globalThis as { close?(): void }).close?.();
  port.close?.();
}

async function serveModule(script: string): Promise<void> {
  const waiting: MessageEvent[] = [];
  port.onmessage = (event: MessageEvent) => void waiting.push(event);
  const { serve } = (await import(/* webpackIgnore: true */ /* @vite-ignore */ script)) as {
    serve(port: MessagePort): void;
  };
  serve(port);
  for (const event of waiting) port.onmessage(event);
}

/** A thread of this engine, which the page starts. */
class RemoteThread implements ThreadLike {
  static readonly all: RemoteThread[] = [];
  onmessage: ThreadLike["onmessage"] = null;
  onerror: ThreadLike["onerror"] = null;

  constructor(readonly number: number) {}

  static start(this: void, start: ThreadStart): RemoteThread {
    const thread = new RemoteThread(RemoteThread.all.length);
    port.postMessage({ id: 0, thread: { number: thread.number, start } } satisfies Reply);
    RemoteThread.all.push(thread);
    return thread;
  }

  joined(error: string | undefined): void {
    if (error === undefined) this.onmessage?.({ data: "joined" } as MessageEvent<Said>);
    else this.onerror?.({ message: error, preventDefault: () => {} } as ErrorEvent);
  }

  terminate(): void {
    port.postMessage({ id: 0, thread: { number: this.number } } satisfies Reply);
  }
}

function serveEngine(first: Request & { readonly id: number }): void {
  let engine: Engine | undefined;
  const early = new Map<string, Promise<Source>>();
  const asking = new Map<number, { resolve(answers: Answers): void; reject(error: Error): void }>();
  const runs = new Map<number, AbortController>();
  let calls = 0;
  let shares = globalThis.crossOriginIsolated !== false;
  let widened = (_: Widened): void => {};
  const ask = (id: number, asked: Asked): Promise<Answers> =>
    new Promise((resolve, reject) => {
      const call = ++calls;
      asking.set(call, { resolve, reject });
      port.postMessage({ id, asked: { ...asked, call } } satisfies Reply);
    });
  const answer = async (data: Request & { readonly id: number }): Promise<void> => {
    const { id } = data;
    try {
      if (data.op === "open") {
        const source = urlSource(data.name);
        source.catch(() => {});
        early.set(data.name, source);
        return;
      }
      if (data.op === "start") {
        const { module, gpu } = data;
        const threads = { count: data.threads, start: RemoteThread.start };
        if (gpu) gpuIsAt(gpu);
        const widen: Widen = async () => {
          const { module: wide, error } = await new Promise<Widened>((resolve) => {
            widened = resolve;
            port.postMessage({ id: 0, wants: "core64" } satisfies Reply);
          });
          if (!wide) throw new Error(error);
          return { module: wide, threads };
        };
        engine = await Engine.start(module, threads, widen);
        port.postMessage({ id } satisfies Reply);
        return;
      }
      if (data.op === "core64") return widened(data);
      if (data.op === "joined") return RemoteThread.all[data.thread]!.joined(data.error);
      if (data.op === "answer") {
        const { resolve, reject } = asking.get(data.call)!;
        asking.delete(data.call);
        if (data.answers) resolve(data.answers);
        else reject(new Error(data.error));
        return;
      }
      if (data.op === "cancel") {
        runs.get(data.call)?.abort(terminated());
        return;
      }
      if (!engine) throw new Error("the engine has not started");
      if (data.op === "dispose") return await engine.dispose(data.tensors);
      if (data.op === "run") runs.set(id, new AbortController());
      const {
        result,
        read = [],
        places,
        transfer,
      } = await handle(engine, data, early, {
        onProgress: (progress) => port.postMessage({ id, progress } satisfies Reply),
        answer: (asked) => ask(id, asked),
        signal: runs.get(id)?.signal,
        shares,
        watch: (inside) => port.postMessage({ id: 0, inside: inside ?? null } satisfies Reply),
      });
      const reply = { id, result, read } satisfies Reply;
      const moved = [...transfer, ...read];
      if (!places) return port.postMessage(reply, moved);
      try {
        port.postMessage({ ...reply, places } satisfies Reply, moved);
      } catch {
        shares = false; // as in WebKitGTK, whose isolated pages lack SharedArrayBuffer
        port.postMessage(reply, moved);
      }
    } catch (error) {
      const name = error instanceof Error ? error.name : "Error";
      port.postMessage({ id, error: messageOf(error), name, lost: error instanceof CoreLost } satisfies Reply);
    } finally {
      runs.delete(id);
    }
  };
  port.onmessage = ({ data }: MessageEvent<Request & { readonly id: number }>) => void answer(data);
  void answer(first);
}

async function handle(
  engine: Engine,
  request: Exclude<Request, { op: "start" | "open" | "answer" | "core64" | "joined" | "cancel" | "dispose" }>,
  early: Map<string, Promise<Source>>,
  hooks: {
    onProgress(progress: Progress): void;
    answer(asked: Asked): Promise<Answers>;
    watch: Watch;
    signal: AbortSignal | undefined;
    /** Whether the page can have the core's memory. */
    shares: boolean;
  },
): Promise<{ result: unknown; read?: ArrayBuffer[]; places?: Places | undefined; transfer: Transferable[] }> {
  switch (request.op) {
    case "load": {
      const external = (file: string): Promise<Source> | undefined => {
        const found = request.external.find(({ path }) => path === file);
        return found && remote(found);
      };
      const { name } = request.source;
      const begun = early.get(name);
      early.delete(name);
      const staged = new Map(
        request.external.flatMap(({ path, staged }) => (staged === undefined ? [] : [[path, staged]])),
      );
      const source = await (begun ?? remote(request.source));
      const result = await engine.load(source, { external, ...hooks }, request.target, staged);
      return { result, transfer: [] };
    }
    case "run": {
      const { session, feeds, wanted, keep, spares } = request;
      const result = await engine.run(session, feeds, wanted, keep, hooks.signal, spares);
      const places = hooks.shares ? engine.places(session, request.asks) : undefined;
      return { result, read: returned(feeds), places, transfer: result.map(({ data }) => data.buffer) };
    }
    case "profile":
      return {
        result: await engine.profile(request.session, request.feeds),
        read: returned(request.feeds),
        transfer: [],
      };
    case "download": {
      const result = await engine.download(request.tensor);
      return { result, transfer: [result.buffer] };
    }
    case "release":
      return { result: await engine.release(request.session), transfer: [] };
    case "stage": {
      const result = await engine.stage(await remote(request.source), request.bytes);
      return { result, transfer: [] };
    }
    case "staged": {
      const result = await engine.staged(request.staged, request.start, request.end);
      return { result, transfer: [result.buffer] };
    }
    case "unstage":
      return { result: engine.unstage(request.staged), transfer: [] };
    case "memory":
      return { result: engine.memoryBytes(), transfer: [] };
  }
}

async function remote({ port, name, url }: Remote): Promise<Source> {
  return port ? portSource(port, name, url) : urlSource(name);
}
