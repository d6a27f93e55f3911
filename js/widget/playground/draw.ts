/** A drawing area: strokes by pointer, or by arrow keys with Shift held for ink. */

interface Point {
  readonly x: number;
  readonly y: number;
}

const SIDE = 256;
const PEN = 0.075;
const STEP = 0.025;
const START: Point = { x: 0.5, y: 0.2 };

export class Drawing {
  readonly #ink = document.createElement("canvas");
  #strokes: Point[][] = [];
  #pen: Point | undefined;
  #inked = false;

  /** `dark` draws light ink on black, else black ink on white. */
  constructor(
    readonly board: HTMLCanvasElement,
    readonly dark: boolean,
    readonly change: () => void,
    signal: AbortSignal,
  ) {
    this.#ink.width = this.#ink.height = SIDE;
    this.#listen(signal);
  }

  get empty(): boolean {
    return !this.#strokes.length;
  }

  clear(): void {
    this.#strokes = [];
    this.#pen = undefined;
    this.change();
  }

  /** The drawing as a square of pixels, without pen. */
  picture(): HTMLCanvasElement {
    const context = this.#ink.getContext("2d", { willReadFrequently: true })!;
    context.fillStyle = this.dark ? "#000" : "#fff";
    context.fillRect(0, 0, SIDE, SIDE);
    context.strokeStyle = this.dark ? "#fff" : "#000";
    strokes(context, this.#strokes, SIDE);
    return this.#ink;
  }

  /** Paints the board, or a copy of it, as the person sees it: ink, and the pen while keys move it. */
  paint(ink: string, hint: string, board = this.board): void {
    const side = Math.max(1, Math.round(board.clientWidth * devicePixelRatio));
    if (board.width !== side) board.width = board.height = side;
    const context = board.getContext("2d")!;
    context.clearRect(0, 0, side, side);
    context.strokeStyle = context.fillStyle = ink;
    if (this.empty && !this.#pen) {
      context.globalAlpha = 0.55;
      context.font = `${13 * devicePixelRatio}px ${getComputedStyle(board).fontFamily}`;
      context.textAlign = "center";
      context.fillText(hint, side / 2, side / 2);
      context.globalAlpha = 1;
    }
    strokes(context, this.#strokes, side);
    if (this.#pen && document.activeElement === board) {
      context.globalAlpha = 0.35;
      context.beginPath();
      context.arc(this.#pen.x * side, this.#pen.y * side, (PEN * side) / 2, 0, 2 * Math.PI);
      context.fill();
      context.globalAlpha = 1;
    }
  }

  #listen(signal: AbortSignal): void {
    const { board } = this;
    const at = (event: PointerEvent): Point => {
      const box = board.getBoundingClientRect();
      return { x: (event.clientX - box.left) / box.width, y: (event.clientY - box.top) / box.height };
    };
    let drawing: number | undefined;
    board.addEventListener(
      "pointerdown",
      (event) => {
        if (drawing !== undefined || event.button !== 0) return;
        drawing = event.pointerId;
        board.setPointerCapture(drawing);
        this.#pen = undefined;
        this.#strokes.push([at(event)]);
        this.change();
      },
      { signal },
    );
    board.addEventListener(
      "pointermove",
      (event) => {
        if (event.pointerId !== drawing) return;
        const events = event.getCoalescedEvents?.() ?? [];
        this.#strokes.at(-1)?.push(...(events.length ? events : [event]).map(at));
        this.change();
      },
      { signal },
    );
    for (const kind of ["pointerup", "pointercancel"] as const)
      board.addEventListener(kind, (event) => event.pointerId === drawing && (drawing = undefined), { signal });
    board.addEventListener("keydown", (event) => this.#key(event), { signal });
    board.addEventListener("keyup", ({ key }) => key === "Shift" && (this.#inked = false), { signal });
    board.addEventListener(
      "focus",
      () => {
        if (board.matches(":focus-visible")) this.#pen ??= START;
        this.change();
      },
      { signal },
    );
    board.addEventListener("blur", () => this.change(), { signal });
  }

  #key(event: KeyboardEvent): void {
    const moves: Record<string, [number, number]> = {
      ArrowLeft: [-STEP, 0],
      ArrowRight: [STEP, 0],
      ArrowUp: [0, -STEP],
      ArrowDown: [0, STEP],
    };
    const move = moves[event.key];
    if (move || ["Delete", "Backspace", "Escape"].includes(event.key)) {
      // Notebooks have commands on these keys.
      event.preventDefault();
      event.stopPropagation();
    }
    if (!move) {
      if (["Delete", "Backspace", "Escape"].includes(event.key)) this.clear();
      return;
    }
    const from = (this.#pen ??= START);
    const bound = (v: number): number => Math.min(0.97, Math.max(0.03, v));
    this.#pen = { x: bound(from.x + move[0]), y: bound(from.y + move[1]) };
    if (event.shiftKey) {
      if (this.#inked) this.#strokes.at(-1)?.push(this.#pen);
      else this.#strokes.push([from, this.#pen]);
    }
    this.#inked = event.shiftKey;
    this.change();
  }
}

function strokes(context: CanvasRenderingContext2D, all: readonly (readonly Point[])[], side: number): void {
  context.lineWidth = PEN * side;
  context.lineCap = context.lineJoin = "round";
  for (const stroke of all) {
    context.beginPath();
    stroke.forEach(({ x, y }, i) => (i ? context.lineTo(x * side, y * side) : context.moveTo(x * side, y * side)));
    if (stroke.length === 1) context.lineTo(stroke[0]!.x * side, stroke[0]!.y * side);
    context.stroke();
  }
}
