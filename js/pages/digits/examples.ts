import type { Stroke } from "./ink.js";

/** An arc of an ellipse as a stroke; angles in degrees, clockwise from the right. */
function arc(x: number, y: number, rx: number, ry: number, from: number, to: number): Stroke {
  const steps = Math.ceil(Math.abs(to - from) / 5);
  return Array.from({ length: steps + 1 }, (_, i) => {
    const angle = ((from + ((to - from) * i) / steps) * Math.PI) / 180;
    return { x: x + rx * Math.cos(angle), y: y + ry * Math.sin(angle) };
  });
}

function line(...coordinates: number[]): Stroke {
  return coordinates.flatMap((x, i) => (i % 2 ? [] : [{ x, y: coordinates[i + 1]! }]));
}

/** One drawing of each digit, 0 to 9. */
export const EXAMPLES: readonly Stroke[][] = [
  [arc(0.5, 0.5, 0.2, 0.32, -90, 270)],
  [line(0.4, 0.3, 0.53, 0.17, 0.52, 0.83)],
  [[...arc(0.5, 0.35, 0.2, 0.17, -160, 40), ...line(0.3, 0.8, 0.74, 0.79)]],
  [[...arc(0.47, 0.34, 0.19, 0.16, -150, 90), ...arc(0.47, 0.66, 0.22, 0.17, -90, 145)]],
  [line(0.47, 0.17, 0.29, 0.56, 0.72, 0.55), line(0.6, 0.38, 0.57, 0.84)],
  [line(0.68, 0.18, 0.39, 0.19, 0.36, 0.46), [...line(0.36, 0.46), ...arc(0.46, 0.63, 0.21, 0.19, -110, 140)]],
  [[...line(0.6, 0.16, 0.42, 0.36, 0.34, 0.6), ...arc(0.5, 0.66, 0.17, 0.17, 170, -190)]],
  [line(0.3, 0.2, 0.71, 0.19, 0.45, 0.84), line(0.38, 0.51, 0.65, 0.49)],
  [[...arc(0.5, 0.33, 0.15, 0.15, 90, 450), ...arc(0.5, 0.66, 0.19, 0.18, -90, 270)]],
  [[...arc(0.49, 0.36, 0.18, 0.18, 0, -350), ...line(0.67, 0.36, 0.63, 0.6, 0.55, 0.85)]],
];
