import { fileURLToPath } from "node:url";

const isolated = [
  { key: "Cross-Origin-Opener-Policy", value: "same-origin" },
  { key: "Cross-Origin-Embedder-Policy", value: "require-corp" },
];

export default {
  // The tools lie in the folder above.
  turbopack: { root: fileURLToPath(new URL("..", import.meta.url)) },
  devIndicators: false,
  headers: async () => [{ source: "/:path*", headers: isolated }],
};
