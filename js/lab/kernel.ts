/** Questions to a kernel of the viewer's own, where no server's extension answers: in JupyterLite, for one. */
import type { Kernel, Sessions } from "@jupyterlab/services";
import type { Ask } from "./knowledge.js";

const ANSWER = "application/vnd.pyonnx-wasm.answer+json";
const SETUP = `
import importlib.util, sys
if importlib.util.find_spec("pyonnx_wasm") is None and sys.platform == "emscripten":
    import piplite
    await piplite.install("pyonnx-wasm")
from pyonnx_wasm.lab.worker import answer as _answer
`;
/** Milliseconds for which an interrupt may be on its way. */
const PATIENCE = 1000;

/** By folder: models beside one another share a kernel; null where the last one had to be ended. */
const kernels = new Map<string, Promise<Kernel | null>>();

export async function kernelAsk(sessions: Sessions, folder: string, signal: AbortSignal): Promise<Ask> {
  const alive = (): Promise<Kernel> => {
    const before = (kernels.get(folder) ?? Promise.resolve(null)).catch(() => null);
    const usable = before.then((known) =>
      known && !known.isDisposed && known.status !== "dead" ? known : start(sessions, folder),
    );
    kernels.set(folder, usable);
    return usable;
  };
  await alive();
  signal.throwIfAborted();
  return async (method, given, asked) => {
    const kernel = await alive();
    asked.throwIfAborted();
    const request = JSON.stringify(JSON.stringify([method, given]));
    const working = execute(
      kernel,
      `import json as _json
from IPython.display import display as _display
_display({"${ANSWER}": _answer(*_json.loads(${request}))}, raw=True)`,
    );
    let giveUp = (): void => {};
    const abandoned = new Promise<never>((_, fail) => {
      giveUp = () => {
        fail(asked.reason as Error);
        kernels.set(folder, stopped(kernel, working));
      };
    });
    asked.addEventListener("abort", giveUp);
    const told = (await Promise.race([working, abandoned]).finally(() =>
      asked.removeEventListener("abort", giveUp),
    )) as { result?: unknown; error?: string } | null;
    if (!told) throw new Error("the kernel gave no answer");
    if (told.error !== undefined) throw new Error(told.error);
    return told.result;
  };
}

/** The kernel, interrupted; one that goes on all the same, as Python in a page's worker does, is ended. */
async function stopped(kernel: Kernel, working: Promise<unknown>): Promise<Kernel | null> {
  const ended = working.then(
    () => kernel,
    () => kernel,
  );
  await kernel.interrupt().catch(() => {});
  const late = new Promise<null>((done) => setTimeout(() => done(null), PATIENCE));
  const found = await Promise.race([ended, late]);
  if (!found) await kernel.shutdown().catch(() => {});
  return found;
}

async function start(sessions: Sessions, folder: string): Promise<Kernel> {
  const path = `${folder ? `${folder}/` : ""}model-viewer-${Math.random().toString(36).slice(2, 10)}`;
  const session = await sessions.startNew({ path, name: "Model viewer", type: "console", kernel: { name: "python" } });
  const kernel = session.kernel!;
  await execute(kernel, SETUP);
  return kernel;
}

/** Runs code; gives what it displayed as an answer. */
async function execute(kernel: Kernel, code: string): Promise<unknown> {
  const future = kernel.requestExecute({ code, silent: false, store_history: false, allow_stdin: false });
  let answer: unknown = null;
  let problem = "";
  future.onIOPub = ({ header, content }) => {
    if (header.msg_type === "display_data") answer = content.data?.[ANSWER] ?? answer;
    else if (header.msg_type === "error") problem = `${content.ename}: ${content.evalue}`;
  };
  await future.done;
  if (problem.includes("ModuleNotFoundError"))
    throw new Error("the kernel has no pyonnx-wasm: pip install pyonnx-wasm");
  if (problem) throw new Error(problem);
  return answer;
}
