/** Ratios of integers. */
import { norm, plain } from "./operators.js";
import { Float, type Any } from "./values.js";

export class Fraction {
  readonly $numerator: Any;
  readonly $denominator: Any;
  constructor(top: Any, bottom: Any = 1) {
    const [a, c] = top instanceof Float ? (top as Any).$as_integer_ratio().a : [top, bottom];
    const common = bigGcd(BigInt(plain(a)), BigInt(plain(c)));
    this.$numerator = norm(BigInt(plain(a)) / common);
    this.$denominator = norm(BigInt(plain(c)) / common);
  }
  /** The nearest one whose denominator is no greater: by continued fractions. */
  $limit_denominator(most: Any): Fraction {
    const limit = BigInt(plain(most));
    const [top, bottom] = [BigInt(this.$numerator), BigInt(this.$denominator)];
    if (bottom <= limit) return this;
    let [p0, q0, p1, q1] = [0n, 1n, 1n, 0n];
    let [n, d] = [top, bottom];
    for (;;) {
      const a = n / d;
      const q2 = q0 + a * q1;
      if (q2 > limit) break;
      [p0, q0, p1, q1] = [p1, q1, p0 + a * p1, q2];
      [n, d] = [d, n - a * d];
    }
    const k = (limit - q0) / q1;
    const far = (p: bigint, q: bigint): bigint => {
      const gap = p * bottom - top * q;
      return gap < 0n ? -gap : gap;
    };
    const [pa, qa] = [p0 + k * p1, q0 + k * q1];
    const nearer = far(p1, q1) * qa <= far(pa, qa) * q1;
    return nearer ? new Fraction(norm(p1), norm(q1)) : new Fraction(norm(pa), norm(qa));
  }
  $__eq__(other: Any): boolean {
    if (other instanceof Fraction)
      return this.$numerator === other.$numerator && this.$denominator === other.$denominator;
    return Number(this.$numerator) / Number(this.$denominator) === Number(other);
  }
  $__float__(): Float {
    return new Float(Number(this.$numerator) / Number(this.$denominator));
  }
  valueOf(): number {
    return Number(this.$numerator) / Number(this.$denominator);
  }
}

export function bigGcd(x: bigint, y: bigint): bigint {
  while (y) [x, y] = [y, x % y];
  return x < 0n ? -x : x;
}
