/** The colour that a kind of operator has wherever it is shown: in the viewer, with a server or without, in Profile and in Compare. */

/** Degrees by what the name of an operator or of a kernel begins with or holds, in lower case; the first that fits counts. */
const HUES: readonly (readonly [number, RegExp])[] = [
  [345, /attention|rotary|embedlayer/],
  [232, /conv|deform|col2im/],
  [212, /matmul|gemm|einsum|^moe|linear|^det$/],
  [65, /quant|^q(binary|pack)|cast|bitshift/],
  [330, /lstm|gru|rnn|recurrent/],
  [190, /pool|roialign|nms|suppression/],
  [38, /norm|^lrn$/],
  [18, /softmax|reduce|cumulative|^cum|argm|topk|^mean$|^sum$|loss|hardmax|lpnorm/],
  [175, /resize|upsample|gridsample|affine|image/],
  [300, /gather|scatter|nonzero|compress|unique|lookup|onehot|embed|where|select|trilu/],
  [
    275,
    /reshape|shape|copy|transpose|squeeze|flatten|slice|concat|split|pad|expand|tile|identity|size|depthto|spaceto|range|literal/,
  ],
  [105, /string|regex|token|label|vectorizer|tree|svm|encoder|scaler|normalizer|imputer|binarizer/],
  [5, /^if$|^loop$|^scan$|sequence|optional/],
  [90, /random|bernoulli|multinomial|dropout/],
  [
    155,
    /^(map|add|sub|mul|div|pow|mod|neg|abs|exp|log|sqrt|reciprocal|sign|floor|ceil|round|clip|min|max|not|and|or|xor|bitwise.*|equal|greater.*|less.*|isnan|isinf|erf|\w*(relu|elu|gelu|sigmoid|swish|mish|softplus|softsign|tan|tanh|sin|cos|sinh|cosh)|fused.*)$/,
  ],
];

/** A hue for an operator, by its type in a model or by the kernel that runs it. */
export function hue(name: string): number {
  const lower = name.toLowerCase();
  const known = HUES.find(([, pattern]) => pattern.test(lower));
  return known ? known[0] : (code(lower) % 24) * 15;
}

/** A colour on which white text can be read; those of one hue differ a little. */
export function tint(name: string): string {
  return `hsl(${hue(name)} 46% ${35 + 4 * (code(name) % 3)}%)`;
}

function code(text: string): number {
  let found = 0;
  for (let k = 0; k < text.length; k++) found = (Math.imul(found, 31) + text.charCodeAt(k)) >>> 0;
  return found;
}
