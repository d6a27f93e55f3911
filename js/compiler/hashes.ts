/** BLAKE2b and SHA-256 of short texts, at once: the browser's own are asynchronous. */

const MASK = (1n << 64n) - 1n;
const IV = [
  0x6a09e667f3bcc908n, 0xbb67ae8584caa73bn, 0x3c6ef372fe94f82bn, 0xa54ff53a5f1d36f1n, 0x510e527fade682d1n, 0x9b05688c2b3e6c1fn,
  0x1f83d9abfb41bd6bn, 0x5be0cd19137e2179n,
]; // prettier-ignore
const SIGMA = [
  "0123456789abcdef",
  "ea489fd61c02b753",
  "b8c052fdae367194",
  "7931dcbe265a40f8",
  "905724afe1bc683d",
  "2c6a0b834d75fe19",
  "c51fed4a0763928b",
  "db7ec13950f4862a",
  "6fe9b308c2d714a5",
  "a2847615fb9e3cd0",
];

const rotr = (x: bigint, n: bigint): bigint => ((x >> n) | (x << (64n - n))) & MASK;

/** RFC 7693, without a key. */
export function blake2b(data: Uint8Array, size: number): Uint8Array {
  const h = IV.slice();
  h[0] = (h[0] as bigint) ^ 0x01010000n ^ BigInt(size);
  const blocks = Math.max(1, Math.ceil(data.length / 128));
  const padded = new Uint8Array(blocks * 128);
  padded.set(data);
  const words = new BigUint64Array(padded.buffer);
  for (let block = 0; block < blocks; block++) {
    const m = words.subarray(block * 16, block * 16 + 16);
    const v = [...h, ...IV];
    const count = BigInt(block === blocks - 1 ? data.length : (block + 1) * 128);
    v[12] = (v[12] as bigint) ^ count;
    if (block === blocks - 1) v[14] = (v[14] as bigint) ^ MASK;
    const mix = (a: number, b: number, c: number, d: number, x: bigint, y: bigint): void => {
      v[a] = ((v[a] as bigint) + (v[b] as bigint) + x) & MASK;
      v[d] = rotr((v[d] as bigint) ^ (v[a] as bigint), 32n);
      v[c] = ((v[c] as bigint) + (v[d] as bigint)) & MASK;
      v[b] = rotr((v[b] as bigint) ^ (v[c] as bigint), 24n);
      v[a] = ((v[a] as bigint) + (v[b] as bigint) + y) & MASK;
      v[d] = rotr((v[d] as bigint) ^ (v[a] as bigint), 16n);
      v[c] = ((v[c] as bigint) + (v[d] as bigint)) & MASK;
      v[b] = rotr((v[b] as bigint) ^ (v[c] as bigint), 63n);
    };
    for (let round = 0; round < 12; round++) {
      const s = [...(SIGMA[round % 10] as string)].map((c) => m[parseInt(c, 16)] as bigint);
      for (let i = 0; i < 4; i++) mix(i, 4 + i, 8 + i, 12 + i, s[2 * i] as bigint, s[2 * i + 1] as bigint);
      for (let i = 0; i < 4; i++)
        mix(
          i,
          4 + ((i + 1) & 3),
          8 + ((i + 2) & 3),
          12 + ((i + 3) & 3),
          s[8 + 2 * i] as bigint,
          s[9 + 2 * i] as bigint,
        );
    }
    for (let i = 0; i < 8; i++) h[i] = (h[i] as bigint) ^ (v[i] as bigint) ^ (v[i + 8] as bigint);
  }
  return new Uint8Array(BigUint64Array.from(h).buffer).slice(0, size);
}

/** FIPS 180-4. */
export function sha256(data: Uint8Array): Uint8Array {
  const primes: number[] = [];
  for (let n = 2; primes.length < 64; n++) if (primes.every((p) => n % p)) primes.push(n);
  const fraction = (x: number): number => ((x - Math.floor(x)) * 2 ** 32) | 0;
  const k = primes.map((p) => fraction(Math.cbrt(p)));
  const h = primes.slice(0, 8).map((p) => fraction(Math.sqrt(p)));
  const length = ((data.length + 8) >> 6) + 1;
  const padded = new DataView(new ArrayBuffer(length * 64));
  new Uint8Array(padded.buffer).set(data);
  padded.setUint8(data.length, 0x80);
  padded.setUint32(length * 64 - 4, data.length * 8);
  padded.setUint32(length * 64 - 8, Math.floor(data.length / 2 ** 29));
  const rot = (x: number, n: number): number => (x >>> n) | (x << (32 - n));
  const w = new Int32Array(64);
  for (let block = 0; block < length; block++) {
    for (let i = 0; i < 16; i++) w[i] = padded.getInt32(block * 64 + i * 4);
    for (let i = 16; i < 64; i++) {
      const [x, y] = [w[i - 15] as number, w[i - 2] as number];
      w[i] =
        ((w[i - 16] as number) +
          (rot(x, 7) ^ rot(x, 18) ^ (x >>> 3)) +
          (w[i - 7] as number) +
          (rot(y, 17) ^ rot(y, 19) ^ (y >>> 10))) |
        0;
    }
    let [a, b, c, d, e, f, g, i] = h as [number, number, number, number, number, number, number, number];
    for (let t = 0; t < 64; t++) {
      const one =
        (i + (rot(e, 6) ^ rot(e, 11) ^ rot(e, 25)) + ((e & f) ^ (~e & g)) + (k[t] as number) + (w[t] as number)) | 0;
      const two = ((rot(a, 2) ^ rot(a, 13) ^ rot(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      [i, g, f, e, d, c, b, a] = [g, f, e, (d + one) | 0, c, b, a, (one + two) | 0];
    }
    [a, b, c, d, e, f, g, i].forEach((x, n) => (h[n] = ((h[n] as number) + x) | 0));
  }
  const out = new DataView(new ArrayBuffer(32));
  h.forEach((x, n) => out.setInt32(n * 4, x));
  return new Uint8Array(out.buffer);
}
