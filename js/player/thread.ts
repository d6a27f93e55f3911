/** One thread of the core: joins the pool and serves it until it is destroyed. */
import type { ThreadExports, ThreadStart } from "./core.js";

export async function serveThread(start: ThreadStart, say: (joined: "joined") => void): Promise<void> {
  const { module, memory, pool, index, stackTop, tls, alarm } = start;
  const instance = await WebAssembly.instantiate(module, { env: { memory } });
  const core = instance.exports as unknown as ThreadExports;
  core.__stack_pointer.value = stackTop;
  if (Number(core.__tls_size.value) > 0) core.__wasm_init_tls(tls);
  say("joined");
  try {
    core.pwx_worker(pool, index);
  } catch (error) {
    alarm?.postMessage(String(error));
  }
}
