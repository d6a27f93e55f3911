// Compares two packages' public members by their declarations: members.mjs TYPESCRIPT THEIRS OURS. Prints a table.
import { createRequire } from "node:module";

const [typescript, ...files] = process.argv.slice(2);
const ts = createRequire(import.meta.url)(typescript);
const program = ts.createProgram(files, { skipLibCheck: true, moduleResolution: ts.ModuleResolutionKind.NodeNext, module: ts.ModuleKind.NodeNext });
const checker = program.getTypeChecker();

/** Names, with the members of namespaces and of types behind dots. */
function members(file) {
  const found = new Set();
  const resolved = (symbol) => (symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol);
  for (const exported of checker.getExportsOfModule(checker.getSymbolAtLocation(program.getSourceFile(file)))) {
    const symbol = resolved(exported);
    found.add(exported.name);
    for (const [name, inner] of symbol.exports ?? []) {
      if (!/^\w+$/.test(name) || name === "prototype") continue;
      found.add(`${exported.name}.${name}`);
      const type = resolved(inner);
      if (!(type.flags & ts.SymbolFlags.Type)) continue;
      const declared = checker.getDeclaredTypeOfSymbol(type);
      if (!(declared.flags & (ts.TypeFlags.Object | ts.TypeFlags.Intersection)) || checker.isArrayLikeType(declared)) continue;
      for (const member of checker.getPropertiesOfType(declared))
        if (/^[a-z]\w*$/i.test(member.name)) found.add(`${exported.name}.${name}.${member.name}`);
    }
    const types = [];
    if (symbol.flags & (ts.SymbolFlags.Type | ts.SymbolFlags.Class)) types.push(checker.getDeclaredTypeOfSymbol(symbol));
    if (symbol.flags & ts.SymbolFlags.Value) types.push(checker.getTypeOfSymbol(symbol));
    for (const type of types)
      for (const { name } of checker.getPropertiesOfType(type)) if (/^[a-z]\w*$/i.test(name)) found.add(`${exported.name}.${name}`);
  }
  return found;
}
const [theirs, ours] = files.map(members);
for (const name of [...theirs].sort()) console.log(`${name}\t${ours.has(name) ? "yes" : "missing"}`);
