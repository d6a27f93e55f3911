/** Comma-separated values as RFC 4180 has them; semicolons and tabs, as spreadsheets write them, are told by the first line. */

export interface Table {
  readonly header: readonly string[];
  readonly rows: readonly (readonly string[])[];
  readonly separator: string;
}

/** Throws an error for people where there is no header, or a row of another length than the header's. */
export function parse(text: string): Table {
  const separator = separatorOf(text);
  const lines = records(text.replace(/^\uFEFF/, ""), separator).filter((line) => line.length > 1 || line[0] !== "");
  const [header, ...rows] = lines;
  if (!header) throw new Error("The file is empty.");
  rows.forEach((row, i) => {
    if (row.length !== header.length)
      throw new Error(`Row ${i + 1} has ${row.length} fields, the header has ${header.length}.`);
  });
  return { header: header.map((name) => name.trim()), rows, separator };
}

export function write({ header, rows, separator }: Table): string {
  const quoted = (field: string): string =>
    /["\r\n]/.test(field) || field.includes(separator) ? `"${field.replaceAll('"', '""')}"` : field;
  return [header, ...rows].map((row) => `${row.map(quoted).join(separator)}\n`).join("");
}

function separatorOf(text: string): string {
  const first = text.slice(0, text.search(/[\r\n]|$/));
  const count = (mark: string): number => first.split(mark).length;
  return [",", ";", "\t"].reduce((best, mark) => (count(mark) > count(best) ? mark : best));
}

function records(text: string, separator: string): string[][] {
  const found: string[][] = [];
  let [row, field, quoted]: [string[], string, boolean] = [[], "", false];
  const end = (): void => {
    found.push([...row, field]);
    [row, field] = [[], ""];
  };
  for (let i = 0; i < text.length; i++) {
    const c = text[i]!;
    if (quoted) {
      if (c !== '"') field += c;
      else if (text[i + 1] === '"') field += text[++i]!;
      else quoted = false;
    } else if (c === '"' && field === "") quoted = true;
    else if (c === separator) {
      row.push(field);
      field = "";
    } else if (c === "\n") end();
    else if (c !== "\r") field += c;
  }
  if (field || row.length) end();
  return found;
}
