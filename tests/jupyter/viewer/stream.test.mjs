/** Reading a file forwards, with and without range requests. */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";
import { load } from "./bundle.mjs";

const { Stream, describe } = await load("stream.ts", "read.ts");
const MB = 1 << 20;

const varint = (n) => (n < 128 ? [n] : [(n % 128) + 128, ...varint(Math.floor(n / 128))]);
const field = (number, ...parts) => {
  const body = Buffer.concat(parts.map((p) => Buffer.from(p)));
  return Buffer.concat([Buffer.from([...varint(number * 8 + 2), ...varint(body.length)]), body]);
};

/** A model of one node behind `size` bytes of weights. */
function model(size) {
  const node = field(1, field(1, "x"), field(1, "w"), field(2, "y"), field(4, "Op"));
  const weight = field(5, [8, ...varint(size / 4)], [16, 1], field(8, "w"), field(9, Buffer.alloc(size)));
  const info = (number, name) => field(number, field(1, name));
  return Buffer.concat([Buffer.from([8, 8]), field(7, node, weight, info(11, "x"), info(12, "y")), field(8, [16, 17])]);
}

async function served(bytes, ranges, use) {
  let sent = 0;
  const server = createServer(({ headers }, response) => {
    const from = ranges ? Number(/bytes=(\d+)-/.exec(headers.range ?? "")?.[1] ?? 0) : 0;
    response.writeHead(headers.range && ranges ? 206 : 200, {
      "Content-Length": bytes.length - from,
      ...(ranges && { "Accept-Ranges": "bytes" }),
    });
    let at = from;
    const pump = () => {
      while (at < bytes.length) {
        const part = bytes.subarray(at, (at += 64 << 10));
        sent += part.length;
        if (!response.write(part)) return response.once("drain", pump);
      }
      response.end();
    };
    pump();
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  try {
    const address = `http://127.0.0.1:${server.address().port}/`;
    return await use(
      (progress = () => {}) => Stream.open(() => Promise.resolve(address), AbortSignal.timeout(30_000), null, progress),
      () => sent,
    );
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

for (const ranges of [true, false])
  test(`weights are passed over, ${ranges ? "and not sent where the server knows ranges" : "read and let go elsewhere"}`, () =>
    served(model(64 * MB), ranges, async (open, sent) => {
      const stream = await open();
      const told = await describe(stream, "m");
      stream.close();
      assert.deepEqual(told.weights.w, { dtype: "float32", shape: [16 * MB], bytes: 64 * MB });
      assert.deepEqual([told.nodes[0].inputs, told.outputs[0].name], [["x", "w"], "y"]);
      assert.deepEqual(told.about[0], ["opset", "ai.onnx 17"]);
      if (ranges) assert.ok(sent() < 16 * MB, `${sent()} bytes were sent`);
    }));

test("every cut of a file is an error that says where, and nothing hangs", async () => {
  const whole = model(400);
  for (let end = 0; end < whole.length; end++) {
    const address = `data:application/octet-stream;base64,${whole.subarray(0, end).toString("base64")}`;
    const read = async () =>
      describe(
        await Stream.open(
          () => Promise.resolve(address),
          AbortSignal.timeout(5000),
          end,
          () => {},
        ),
        "m",
      );
    const complete = end === whole.length - field(8, [16, 17]).length;
    if (complete) await read();
    else await assert.rejects(read, /byte|empty|no graph|damaged|truncated/, `cut at ${end}`);
  }
});

test("damaged bytes end in a description or an error, never elsewhere", async () => {
  const whole = model(80);
  let seed = 7;
  const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
  for (let round = 0; round < 600; round++) {
    const bytes = Buffer.from(whole);
    for (let k = 0; k <= random(4); k++) bytes[random(bytes.length)] = random(256);
    const address = `data:application/octet-stream;base64,${bytes.toString("base64")}`;
    const stream = await Stream.open(
      () => Promise.resolve(address),
      AbortSignal.timeout(5000),
      bytes.length,
      () => {},
    );
    await describe(stream, "m").catch((error) =>
      assert.ok(error instanceof Error && error.message && !(error instanceof RangeError), error),
    );
  }
});
