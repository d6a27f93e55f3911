/** Finds what belongs to a model beside it, as `pyonnx_wasm/generate/exports.py` does: its files, the ends of its texts, how much it reads. */
import { openFile, pathAddress } from "../server.js";

const NAMES = [
  "decoder_model_merged.onnx",
  "model.onnx",
  "decoder_with_past_model.onnx",
  "model_q4.onnx",
  "model_quantized.onnx",
  "decoder_model_merged.ponnx",
  "decoder_with_past_model.ponnx",
  "model.ponnx",
];

type Json = Readonly<Record<string, unknown>>;

/** Addresses of an export's models. */
export interface Export {
  readonly model: string;
  /** Reads the beginning of a text, of exports in two files. */
  readonly first: string | undefined;
  /** Reads what a text is about. */
  readonly encoder: string | undefined;
  /** Where its configuration is. */
  readonly home: string;
}

/** What configurations say of how text is made. */
export interface Said {
  context?: number;
  ends?: readonly number[];
  begin?: number;
  decoderInputIds?: readonly number[];
  suppressTokens?: readonly number[];
  beginSuppressTokens?: readonly number[];
}

/** A file's text; undefined where there is none. */
async function textOf(address: string): Promise<string | undefined> {
  const url = pathAddress(address) ?? address;
  const file = await openFile(url).catch(() => null);
  if (file === null) return undefined;
  if (file) {
    try {
      return new TextDecoder().decode(await file.read(await file.size(), 0));
    } finally {
      file.close();
    }
  }
  const response = await fetch(url);
  return isThere(response) ? response.text() : undefined;
}

/** Servers of applications of one page give that in the place of what they lack. */
const isThere = ({ ok, headers }: Response): boolean => ok && !headers.get("Content-Type")?.includes("text/html");

async function exists(address: string): Promise<boolean> {
  const url = pathAddress(address) ?? address;
  const file = await openFile(url).catch(() => null);
  file?.close();
  return file === undefined ? isThere(await fetch(url, { method: "HEAD" })) : file !== null;
}

/** The JSON object of a file beside a model; undefined where there is no such file. Throws an Error where it holds none. */
export async function jsonOf(address: string): Promise<Json | undefined> {
  const text = await textOf(address);
  if (text === undefined) return undefined;
  let held: unknown;
  try {
    held = JSON.parse(text);
  } catch {
    throw new Error(`${address} is no JSON: ${text.slice(0, 60)}`);
  }
  return typeof held === "object" && held && !Array.isArray(held) ? (held as Json) : {};
}

async function genaiOf(folder: string): Promise<Json | undefined> {
  return (await jsonOf(`${folder}genai_config.json`))?.["model"] as Json | undefined;
}

/** The export in a folder, whose address ends with "/". Throws an Error where it holds no model. */
export async function found(folder: string): Promise<Export> {
  const name = ((await genaiOf(folder))?.["decoder"] as Json | undefined)?.["filename"];
  const names = typeof name === "string" ? [name] : NAMES;
  const places = [folder, `${folder}onnx/`].flatMap((home) => names.map((file) => [home, file] as const));
  const there = await Promise.all(places.map(([home, file]) => exists(home + file)));
  const place = places[there.indexOf(true)];
  if (!place) throw new Error(`${folder} holds no model (${names.join(", ")})`);
  const [home, file] = place;
  const reads = file.replace(/^decoder(_with_past)?_model(_merged)?/, "encoder_model");
  const within = /(^|\/)onnx\/$/.test(folder);
  const here = !within || (await exists(`${folder}config.json`)) || (await exists(`${folder}tokenizer.json`));
  return {
    model: home + file,
    first: file.startsWith("decoder_with_past_model") ? home + file.replace("_with_past", "") : undefined,
    encoder: reads !== file && (await exists(home + reads)) ? home + reads : undefined,
    home: here ? folder : folder.replace(/onnx\/$/, ""),
  };
}

const numbers = (...given: unknown[]): number[] => given.flat().filter((id): id is number => typeof id === "number");

/** What a configuration says, `config.json` with others in its folder by its address, or as an object. */
export async function said(config: string | Json, encoder: boolean): Promise<Said> {
  if (typeof config === "object") return told(config, config, {}, encoder);
  const folder = config.slice(0, config.lastIndexOf("/") + 1);
  const files = [config.endsWith("/") ? `${config}config.json` : config, `${folder}generation_config.json`];
  const [about = {}, generation = {}, genai = {}] = await Promise.all([...files.map(jsonOf), genaiOf(folder)]);
  return told(about, generation, genai, encoder);
}

/** How transformers' configurations, and the genai builder's, say it; `encoder`: texts are behind one. */
function told(config: Json, generation: Json, genai: Json, encoder: boolean): Said {
  const made: Said = {};
  const lengths = ["max_target_positions", "max_position_embeddings", ...(encoder ? [] : ["n_positions"])];
  const [context] = [genai["context_length"], ...lengths.map((name) => config[name])].filter(Boolean) as number[];
  const ends = numbers(
    [genai, generation, config].map((one) => one["eos_token_id"]).find((id) => id !== undefined && id !== null),
  );
  const [begin] = numbers(genai["bos_token_id"] === undefined ? config["bos_token_id"] : genai["bos_token_id"]);
  if (context !== undefined) made.context = context;
  if (ends.length) made.ends = ends;
  if (begin !== undefined) made.begin = begin;
  if (!encoder) return made;
  const known = Object.entries(generation).filter(([, value]) => value !== null && value !== undefined);
  const all: Json = { ...config, ...Object.fromEntries(known) };
  const start = all["decoder_start_token_id"] ?? all["bos_token_id"];
  const pairs = (all["forced_decoder_ids"] ?? []) as [number, number | null][];
  const forced = numbers(pairs.map(([, id]) => id));
  const starts = [...numbers(start), ...(forced.length ? forced : numbers(all["forced_bos_token_id"]))];
  if (starts.length) made.decoderInputIds = starts;
  made.suppressTokens = numbers(all["suppress_tokens"] ?? []);
  made.beginSuppressTokens = numbers(all["begin_suppress_tokens"] ?? []);
  return made;
}
