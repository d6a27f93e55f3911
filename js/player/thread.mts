/** The script of one thread of the core: joins the pool and serves it until it is destroyed. */
import type { CoreExports, ThreadStart } from "./core.js";

onmessage = async ({ data }: MessageEvent<ThreadStart>): Promise<void> => {
  const { module, memory, pool, index, stackTop, tls, alarm } = data;
  const instance = await WebAssembly.instantiate(module, { env: { memory } });
  const core = instance.exports as unknown as CoreExports;
  core.__stack_pointer.value = stackTop;
  if (core.__tls_size.value > 0) core.__wasm_init_tls(tls);
  try {
    core.pwx_worker(pool, index);
  } catch (error) {
    alarm?.postMessage(String(error));
  }
  close();
};
