/** The page's end of the wire (js/widget, bundled into $BUNDLE); the test is the kernel and sees every frame. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { pathToFileURL } from "node:url";

const { Assembler, Rpc, Turns, encode, fetchModel, WINDOW } = await import(pathToFileURL(process.env.BUNDLE).href);
const tick = () => new Promise((resolve) => setTimeout(resolve));
const hex = (bytes) => Buffer.from(bytes).toString("hex");

class Line {
  sent = [];
  listeners = {};
  constructor(options) {
    const model = {
      send: (content, callbacks, buffers) => this.sent.push({ header: content, buffers: buffers.map((b) => new Uint8Array(b)) }),
      on: (event, callback) => (event === "msg:custom" ? (this.callback = callback) : (this.listeners[event] = callback)),
      off: () => (this.callback = () => {}),
    };
    this.rpc = new Rpc(model, options);
    this.peer = this.rpc.peer;
    assert.equal(this.take().header.kind, "hello");
  }
  take() {
    assert.ok(this.sent.length, "the page sent nothing");
    return this.sent.shift();
  }
  raw(header, buffers = []) {
    this.callback(header, buffers.map((b) => new DataView(b.buffer, b.byteOffset, b.byteLength)));
  }
  give(message, frameBytes) {
    for (const { header, buffers } of encode({ peer: this.peer, ...message }, frameBytes)) this.raw(header, buffers);
  }
}

const bytes = (n) => Uint8Array.from({ length: n }, (_, k) => k % 251);
const uint8 = (data, name = "") => ({ name, dtype: "uint8", dims: [data.length], data });

test("a call and its answer", async () => {
  const line = new Line();
  const answer = line.rpc.call("f", { a: 1 }, [new Float32Array([1, 2])]);
  const { header, buffers } = line.take();
  assert.deepEqual([header.op, header.json, header.peer], ["f", { a: 1 }, line.peer]);
  assert.equal(hex(buffers[0]), "0000803f00000040");
  line.give({ kind: "result", id: header.id, json: "ok", tensors: [uint8(bytes(10))] }, 4);
  assert.deepEqual(line.sent.map(({ header: h }) => [h.kind, h.seq]), [["ack", 0], ["ack", 1]]);
  const reply = await answer;
  assert.equal(reply.json, "ok");
  assert.deepEqual(reply.buffers[0], bytes(10));
});

test("a page says goodbye to a kernel that listens, and nothing to one that closed the widget", async () => {
  const left = new Line();
  left.rpc.close();
  assert.equal(left.take().header.kind, "bye");
  const cut = new Line();
  const answer = cut.rpc.call("f");
  cut.take();
  cut.listeners["comm:close"]();
  cut.give({ kind: "ping", id: "ping" });
  cut.rpc.close();
  await assert.rejects(answer, { name: "Closed" });
  assert.deepEqual(cut.sent, []);
});

test("at most a window of frames is on the way", async () => {
  const line = new Line();
  const data = bytes(30_000_000);
  const answer = line.rpc.call("f", null, [data.subarray(1)]);
  const assembler = new Assembler();
  let message;
  let frames = 0;
  while (!message) {
    assert.ok(line.sent.length <= WINDOW);
    const { header, buffers } = line.take();
    message = assembler.push(header, buffers);
    frames++;
    line.give({ kind: "ack", id: header.id, seq: header.seq + 1 });
    line.give({ kind: "ack", id: header.id, seq: header.seq });
  }
  assert.equal(frames, 8);
  assert.ok(Buffer.from(message.tensors[0].data).equals(Buffer.from(data.subarray(1))));
  line.give({ kind: "result", id: message.id });
  await answer;
});

test("errors, progress, abort", async () => {
  const line = new Line();
  const seen = [];
  const failed = line.rpc.call("f", null, [], { onProgress: (p) => seen.push(p) });
  const { id } = line.take().header;
  line.give({ kind: "progress", id, json: 0.5 });
  line.give({ kind: "error", id, error: { name: "KeyError", message: "'x'" } });
  await assert.rejects(failed, { name: "KeyError", message: "'x'" });
  assert.deepEqual(seen, [0.5]);
  const controller = new AbortController();
  const aborted = line.rpc.call("f", null, [], { signal: controller.signal });
  line.take();
  controller.abort(new Error("enough"));
  await assert.rejects(aborted, /enough/);
  assert.equal(line.take().header.kind, "cancel");
  line.give({ kind: "result", id: "unknown" });
});

test("a damaged result reaches the caller", async () => {
  const line = new Line();
  for (const [change, text] of [
    [{ tensors: [{ name: "x" }] }, /must be text/],
    [{ seq: 3 }, /frame 3/],
    [{ v: 2 }, /wire version 2/],
  ]) {
    const answer = line.rpc.call("f");
    const { id } = line.take().header;
    line.raw({ v: 1, kind: "result", id, peer: line.peer, seq: 0, last: true, json: null, tensors: [], ...change });
    await assert.rejects(answer, { name: "WireError", message: text });
    assert.equal(line.take().header.kind, "cancel");
  }
});

test("a damaged call is answered with an error", async () => {
  const line = new Line();
  line.rpc.handle("f", () => ({ json: 1 }));
  const good = { v: 1, kind: "call", id: "k1", peer: line.peer, seq: 0, last: true, op: "f", json: null, tensors: [] };
  for (const change of [{ op: 5 }, { tensors: null }, { seq: 1 }, { v: 99 }]) {
    line.raw({ ...good, ...change });
    const { header } = line.take();
    assert.deepEqual([header.kind, header.id, header.error.name], ["error", "k1", "WireError"]);
  }
  const warn = console.warn;
  console.warn = () => {};
  for (const nonsense of [null, 5, "call", [], {}, { v: 1 }, { ...good, id: 5 }, { ...good, kind: "eval" }]) line.raw(nonsense);
  console.warn = warn;
  assert.equal(line.sent.length, 0);
  line.raw({ ...good, peer: "another page" });
  line.raw(good);
  await tick();
  assert.equal(line.take().header.json, 1);
  assert.equal(line.sent.length, 0);
});

test("memory is taken as bytes arrive, not as a header says", () => {
  const length = 2 ** 31;
  const declared = { name: "x", dtype: "uint8", dims: [length], offset: 0, length };
  const before = process.memoryUsage().arrayBuffers;
  const assembler = new Assembler();
  const frame = { v: 1, kind: "result", id: "a", peer: "p", seq: 0, last: false, json: null, tensors: [declared] };
  assert.equal(assembler.push(frame, [bytes(1000)]), undefined);
  assembler.push({ ...frame, seq: 1 }, [bytes(5000)]);
  assert.ok(process.memoryUsage().arrayBuffers - before < 2 ** 20);
});

test("handlers", async () => {
  const line = new Line();
  line.rpc.handle("double", ({ buffers, progress }) => {
    progress("half");
    return { json: "done", buffers: [buffers[0].map((x) => 2 * x)] };
  });
  line.rpc.handle("wait", ({ signal }) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))));
  line.rpc.handle("bad", () => [].missing.thing);
  line.give({ kind: "call", id: "k1", op: "double", tensors: [uint8(bytes(3))] });
  await tick();
  assert.equal(line.take().header.json, "half");
  const { header, buffers } = line.take();
  assert.deepEqual([header.json, hex(buffers[0])], ["done", "000204"]);
  line.give({ kind: "call", id: "k2", op: "bad" });
  line.give({ kind: "call", id: "k3", op: "constructor" });
  line.give({ kind: "call", id: "k4", op: "wait" });
  await tick();
  assert.equal(line.take().header.error.name, "TypeError");
  assert.match(line.take().header.error.message, /no operation "constructor"/);
  line.give({ kind: "cancel", id: "k4" });
  await tick();
  assert.equal(line.sent.length, 0);
});

test("what is given up waits no longer, and its result goes nowhere", async () => {
  const line = new Line();
  const turns = new Turns();
  const begun = [];
  const ends = [];
  line.rpc.handle("run", ({ json, signal }) =>
    turns.take(() => {
      begun.push(json);
      return new Promise((resolve) => ends.push(() => resolve({ json, buffers: [bytes(9)] })));
    }, signal),
  );
  for (const k of [1, 2, 3, 4]) line.give({ kind: "call", id: `k${k}`, op: "run", json: k });
  await tick();
  assert.deepEqual(begun, [1]);
  line.give({ kind: "cancel", id: "k1" });
  line.give({ kind: "cancel", id: "k3" });
  ends[0]();
  await tick();
  assert.deepEqual([begun, line.sent.length], [[1, 2], 0]);
  ends[1]();
  await tick();
  assert.deepEqual([begun, line.take().header.json], [[1, 2, 4], 2]);
  ends[2]();
  await tick();
  assert.deepEqual([line.take().header.json, line.sent.length], [4, 0]);
});

test("who, ping, refusal and close", async () => {
  let refusal = "";
  const line = new Line({ onRefused: (reason) => (refusal = reason) });
  line.give({ kind: "who", id: "who", peer: "" });
  const { header } = line.take();
  assert.equal(header.kind, "hello");
  line.give({ kind: "ping", id: "ping" });
  assert.equal(line.take().header.kind, "pong");
  line.give({ kind: "error", id: header.id, error: { name: "WireError", message: "too old" } });
  assert.equal(refusal, "too old");
  const open = line.rpc.call("f");
  line.rpc.close("the kernel is gone");
  await assert.rejects(open, /the kernel is gone/);
  await assert.rejects(line.rpc.call("f"), /the kernel is gone/);
});

/** Answers "read" calls with the bytes of `data`. */
function serve(line, data, change = (answer) => answer) {
  for (const { header } of line.sent.splice(0)) {
    if (header.kind !== "call") continue;
    const { start, end } = header.json;
    line.give({ kind: "result", id: header.id, tensors: [uint8(change(data.subarray(start, end)))] });
  }
}

test("a kernel that names a channel gets its frames there", async () => {
  const kernel = new BroadcastChannel("kernel");
  const heard = new Promise((resolve) => (kernel.onmessage = ({ data }) => data[0].includes('"call"') && resolve(data)));
  const model = { get: (key) => (key === "_channel" ? "kernel" : undefined), send: assert.fail, on() {}, off() {} };
  const rpc = new Rpc(model);
  const call = rpc.call("f", null, [bytes(10).subarray(3)]);
  const [header, buffer] = await heard;
  assert.equal(JSON.parse(header).op, "f");
  assert.equal(hex(new Uint8Array(buffer)), hex(bytes(10).subarray(3)));
  rpc.close("done");
  await assert.rejects(call, /done/);
  kernel.close();
});

test("a file is read as it is consumed", async () => {
  const line = new Line();
  const data = bytes(3_000_000);
  const told = [];
  const stream = await fetchModel(line.rpc, { sha256: "ab", bytes: data.length }, (p) => told.push(p));
  await tick();
  assert.equal(line.sent.length, 0);
  const reader = stream.getReader();
  const got = [];
  for (;;) {
    const next = reader.read();
    await tick();
    assert.ok(line.sent.length <= 4);
    serve(line, data);
    const { done, value } = await next;
    if (done) break;
    got.push(value);
  }
  assert.ok(Buffer.concat(got).equals(Buffer.from(data)));
  assert.equal(told.at(-1).loaded, data.length);
  assert.match(told[0].uncached, /secure context/);
});

test("a file that breaks off ends its stream", async () => {
  const line = new Line();
  const data = bytes(1_000_000);
  const stream = await fetchModel(line.rpc, { sha256: "ab", bytes: data.length });
  const next = stream.getReader().read();
  await tick();
  serve(line, data, (piece) => piece.subarray(1));
  await assert.rejects(next, /the kernel sent \d+ bytes/);
  const second = await fetchModel(line.rpc, { sha256: "ab", bytes: data.length });
  const reader = second.getReader();
  const pending = reader.read();
  await tick();
  line.rpc.close("the kernel was restarted");
  await assert.rejects(pending, /the kernel was restarted/);
});

/** A page whose clock the test sets: seconds that pass without a timer. */
class Slow extends Line {
  constructor(t, options) {
    t.mock.timers.enable({ apis: ["setInterval"] });
    let now = 0;
    t.mock.method(performance, "now", () => now);
    super(options);
    this.pass = (seconds) => {
      for (let s = 0; s < seconds; s++) {
        now += 1000;
        t.mock.timers.tick(1000);
      }
    };
  }
  kinds() {
    return this.sent.splice(0).map(({ header }) => header.kind);
  }
}

test("a call that got lost is sent again, and given up in the end", async (t) => {
  const line = new Slow(t);
  const answer = line.rpc.call("read", { start: 0 }, [bytes(10)]);
  const { id } = line.take().header;
  for (let tries = 0; tries < 3; tries++) {
    line.pass(3);
    const { header } = line.take();
    assert.equal(header.kind, "ping");
    line.give({ kind: "pong", id: header.id, json: { serving: {} } });
    assert.equal(line.take().header.kind, "cancel");
    const again = line.take();
    assert.deepEqual([again.header.id, again.header.op, again.header.json], [id, "read", { start: 0 }]);
    assert.equal(hex(again.buffers[0]), hex(bytes(10)));
  }
  line.pass(3);
  line.give({ kind: "pong", id: line.take().header.id, json: { serving: {} } });
  await assert.rejects(answer, /the kernel is there, but does not answer "read": run the cell again/);
  line.pass(10);
  assert.deepEqual(line.sent, []);
});

test("a call that the kernel has, or makes progress with, is left alone", async (t) => {
  const line = new Slow(t);
  const answer = line.rpc.call("run");
  const { id } = line.take().header;
  line.pass(3);
  line.give({ kind: "pong", id: line.take().header.id, json: { serving: { [id]: 0 } } });
  assert.deepEqual(line.kinds(), []);
  line.pass(1);
  line.give({ kind: "pong", id: line.take().header.id }); // an older kernel says nothing
  for (let k = 0; k < 10; k++) {
    line.give({ kind: "progress", id, json: k });
    line.pass(2);
  }
  assert.deepEqual(line.kinds(), []);
  line.give({ kind: "result", id, json: "done" });
  assert.equal((await answer).json, "done");
});

test("a kernel that answers nothing is told of, not given up", async (t) => {
  const told = [];
  const line = new Slow(t, { onStall: (seconds) => told.push(seconds), onActive: (active) => told.push(active) });
  const answer = line.rpc.call("f");
  const { id } = line.take().header;
  line.pass(8);
  assert.deepEqual(told, [6, 7, 8]);
  assert.deepEqual(line.kinds(), ["ping", "ping"]);
  line.give({ kind: "ping", id: "ping", json: { active: false } });
  assert.deepEqual(told.at(-1), false);
  assert.deepEqual(line.take().header.json, { serving: {} });
  line.give({ kind: "result", id });
  await answer;
});

test("what a page serves, it says", async (t) => {
  const line = new Slow(t);
  let end;
  line.rpc.handle("run", ({ progress }) => new Promise((done) => (end = { done, progress })));
  line.give({ kind: "call", id: "k1", op: "run" });
  line.pass(4);
  const ask = () => {
    line.give({ kind: "ping", id: "ping" });
    return line.sent.findLast(({ header }) => header.kind === "pong").header.json.serving;
  };
  assert.deepEqual(ask(), { k1: 4 });
  end.progress(0.5);
  assert.deepEqual(ask(), { k1: 0 });
  end.done();
  await Promise.resolve().then(() => {}).then(() => {});
  t.mock.timers.reset();
  await tick();
  assert.deepEqual(ask(), {});
});
