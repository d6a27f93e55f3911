/** What the schema of an operator says, on request. */
import { messageOf } from "./details.js";
import { breakable, el } from "./dom.js";
import type { Documentation } from "./knowledge.js";

export function documentation(load: () => Promise<Documentation>): HTMLElement {
  const place = el("div", {});
  const show = async (): Promise<void> => {
    place.replaceChildren(el("span", { class: "pw-faint" }, "reading …"));
    try {
      place.replaceChildren(told(await load()));
    } catch (error) {
      place.replaceChildren(el("p", { class: "pw-error" }, messageOf(error)));
    }
  };
  const fold = el("details", { class: "pw-fold" }, el("summary", {}, "Documentation"), place);
  fold.addEventListener("toggle", () => fold.open && !place.childElementCount && void show());
  return fold;
}

function told({ doc, since, inputs, outputs, attributes, more }: Documentation): HTMLElement {
  const rows = (title: string, given: Documentation["inputs"], between: string): HTMLElement | false =>
    given.length > 0 &&
    el(
      "div",
      {},
      el("h4", {}, title),
      el(
        "dl",
        {},
        ...given.flatMap(([name, kind, text]) => [
          el(
            "dt",
            {},
            el("code", {}, ...breakable(name)),
            kind ? el("span", { class: "pw-faint" }, `${between}${kind}`) : null,
          ),
          el("dd", {}, text),
        ]),
      ),
    );
  return el(
    "div",
    { class: "pw-doc" },
    el("p", { class: "pw-faint" }, `as of version ${since}`),
    ...doc.split(/\n\s*\n/).map((part) => el("p", {}, part.trim())),
    rows("Inputs", inputs, " "),
    rows("Outputs", outputs, " "),
    rows("Attributes", attributes, " default "),
    more ? el("a", { href: more, target: "_blank", rel: "noopener" }, "Read on at onnx.ai") : null,
  );
}
