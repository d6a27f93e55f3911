// node tests/tokenizer.mjs ASKED.json: what pyonnx_wasm/lib/pyodide/tokenizer.js makes of texts and ids by each document, as JSON.
import { readFileSync } from "node:fs";
import { runInThisContext } from "node:vm";

const library = runInThisContext(readFileSync(new URL("../pyonnx_wasm/lib/pyodide/tokenizer.js", import.meta.url), "utf8"));
const { documents, texts, ids, halves } = JSON.parse(readFileSync(process.argv[2], "utf8"));
const failed = (doing) => {
  try {
    return doing();
  } catch (error) {
    return error.message;
  }
};
const found = documents.map((document) => {
  const words = library.open(document);
  return {
    ids: texts.map((text) => [...library.encode(words, text)]),
    texts: ids.map((some) => [true, false].map((skip) => library.decode(words, some, skip))),
    halves: halves.map((text) => failed(() => library.encode(words, text))),
  };
});
console.log(JSON.stringify(found));
