/** The layout's worker: answers each request with a layout. Ending the worker cancels. */
import { compound, type Box, type Edge } from "./compound.js";

addEventListener("message", ({ data }: MessageEvent<{ boxes: Box[]; edges: Edge[] }>) => {
  postMessage(compound(data.boxes, data.edges));
});
