/** Rows of a file, all answered, shown and given back with columns of predictions. */
import type { InferenceSession, Tensor } from "pyonnx-wasm";
import { element, milliseconds } from "../common.js";
import { parse, write, type Table } from "./csv.js";
import { columnOf, title } from "./form.js";
import type { Answer, Answers } from "./main.js";

const SHOWN = 8;
/** Rows of one run. */
const TOGETHER = 512;
const COLUMNS = ["predicted", "probability"];

export class Batch {
  readonly #inputs: InferenceSession["inputMetadata"];
  readonly #answers: Answers;
  #address = "";

  constructor(inputs: InferenceSession["inputMetadata"], answers: Answers) {
    this.#inputs = inputs;
    this.#answers = answers;
  }

  /** Answers a file, or what a server sends; tells what is wrong where it cannot. */
  async take(source: File | Promise<Response>, name = source instanceof File ? source.name : ""): Promise<void> {
    const status = element("batch-status");
    element("results").hidden = true;
    status.classList.remove("failed");
    status.textContent = `Reading ${name}`;
    try {
      const table = parse(await (source instanceof File ? source : await source).text());
      const before = performance.now();
      const answers = await this.#all(table);
      const spent = performance.now() - before;
      status.textContent = [
        `${name}: ${table.rows.length} rows answered in ${milliseconds(spent)}`,
        ...agreement(table, answers),
      ].join(" · ");
      this.#show(table, answers, name);
    } catch (error) {
      status.classList.add("failed");
      status.textContent = `${name} could not be answered. ${error instanceof Error ? error.message : String(error)}`;
    }
  }

  async #all({ header, rows }: Table): Promise<Answer[]> {
    const missing = this.#inputs.filter(({ name }) => !header.includes(name)).map(({ name }) => `“${name}”`);
    if (missing.length) throw new Error(`It has no column ${missing.join(" and none ")}.`);
    if (!rows.length) throw new Error("It has no rows below its header.");
    const answers: Answer[] = [];
    for (let from = 0; from < rows.length; from += TOGETHER) {
      const part = rows.slice(from, from + TOGETHER);
      answers.push(...(await this.#answers(this.#feeds(header, part, from))));
    }
    return answers;
  }

  #feeds(header: readonly string[], rows: Table["rows"], from: number): Record<string, Tensor> {
    const entries = this.#inputs.map((input): [string, Tensor] => {
      const at = header.indexOf(input.name);
      const texts = rows.map((row) => row[at]!);
      try {
        return [input.name, columnOf(input, texts)];
      } catch (error) {
        const bad = texts.findIndex((text) => {
          try {
            columnOf(input, [text]);
            return false;
          } catch {
            return true;
          }
        });
        throw new Error(`Row ${from + bad + 1}: ${error instanceof Error ? error.message : String(error)}.`);
      }
    });
    return Object.fromEntries(entries);
  }

  #show({ header, rows, separator }: Table, answers: readonly Answer[], name: string): void {
    const answered = rows.map((row, i) => {
      const { label, probabilities } = answers[i]!;
      return [...row, label, (probabilities.get(label) ?? 0).toFixed(4)];
    });
    const whole = { header: [...header, ...COLUMNS], rows: answered, separator };
    const first = (row: readonly string[]): string[] => [
      ...row.slice(-COLUMNS.length),
      ...row.slice(0, -COLUMNS.length),
    ];
    const body = document.createElement("tbody");
    for (const row of answered.slice(0, SHOWN)) {
      const line = body.insertRow();
      first(row).forEach((text, i) => {
        const cell = line.insertCell();
        cell.textContent = i === 1 ? `${(100 * Number(text)).toFixed(1)} %` : text;
        cell.classList.toggle("predicted", i < COLUMNS.length);
      });
    }
    const head = document.createElement("thead").insertRow();
    for (const column of first(whole.header)) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = title(column);
      head.append(cell);
    }
    const caption = document.createElement("caption");
    caption.textContent = rows.length > SHOWN ? `The first ${SHOWN} of ${rows.length} rows` : "All rows";
    element("rows").replaceChildren(caption, head.parentElement!, body);
    URL.revokeObjectURL(this.#address);
    this.#address = URL.createObjectURL(new Blob([write(whole)], { type: "text/csv" }));
    const link = element<HTMLAnchorElement>("download");
    link.href = this.#address;
    link.download = name.replace(/(\.\w+)?$/, "_predicted.csv");
    element("results").hidden = false;
  }
}

/** How many predictions a column holds, where one does: all of its values are answers that the model gives. */
function agreement({ header, rows }: Table, answers: readonly Answer[]): string[] {
  const known = answers[0]!.probabilities;
  const at = header.findIndex((_, i) => rows.every((row) => known.has(row[i]!)));
  if (at < 0) return [];
  const right = rows.filter((row, i) => row[at] === answers[i]!.label).length;
  return [`${right} as the column “${header[at]}” says (${((100 * right) / rows.length).toFixed(1)} %)`];
}
