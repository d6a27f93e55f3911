/** What a model says of itself, as the compiler keeps it in the file. */
import type { ModelMetadata } from "./types.js";

/** Of a header's `provenance`, which changes nothing: what is not there is empty. */
export function metadataOf(provenance: unknown): ModelMetadata {
  const about = fields(provenance);
  const { graph, domain, description, version, metadata } = fields(about["model"]);
  const custom = Object.entries(fields(metadata)).map(([key, value]) => [key, text(value)] as const);
  return {
    producer: text(about["producer"]),
    graph: text(graph),
    domain: text(domain),
    description: text(description),
    version: typeof version === "number" ? version : 0,
    custom: Object.fromEntries(custom),
  };
}

function fields(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}
