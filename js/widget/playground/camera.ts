/** The camera, or a film, as a source of frames. */

export class Camera {
  readonly video = document.createElement("video");
  #stream: MediaStream | undefined;
  #frame = 0;
  #film = "";

  /** Calls `frame` for each new frame until it is stopped. Rejects with an error for people: no camera, not allowed. */
  async start(frame: () => void, ended: () => void): Promise<void> {
    if (!navigator.mediaDevices?.getUserMedia)
      throw new Error("The camera needs a secure page (https or localhost) that allows it. Use a file instead.");
    try {
      this.#stream = await navigator.mediaDevices.getUserMedia({
        video: { width: { ideal: 640 }, height: { ideal: 480 } },
      });
    } catch (error) {
      throw new Error(reason(error));
    }
    for (const track of this.#stream.getTracks()) track.addEventListener("ended", ended);
    const { video } = this;
    video.muted = video.playsInline = true;
    video.srcObject = this.#stream;
    await video.play();
    const next = (): void => {
      if (!this.#stream) return;
      if (video.videoWidth) frame();
      this.#wait(next);
    };
    this.#wait(next);
  }

  /** The same with the frames of a film, again and again. Rejects where the browser cannot play it. */
  async play(film: Blob, frame: () => void): Promise<void> {
    this.stop();
    const { video } = this;
    video.muted = video.playsInline = video.loop = true;
    video.src = this.#film = URL.createObjectURL(film);
    try {
      await video.play();
    } catch {
      this.stop();
      throw new Error("The film cannot be played here: use MP4 (H.264), WebM or Ogg.");
    }
    const next = (): void => {
      if (!this.running) return;
      if (video.videoWidth) frame();
      this.#wait(next);
    };
    this.#wait(next);
  }

  get running(): boolean {
    return this.#stream !== undefined || this.#film !== "";
  }

  stop(): void {
    for (const track of this.#stream?.getTracks() ?? []) track.stop();
    this.#stream = undefined;
    this.video.srcObject = null;
    if (this.#film) {
      this.video.pause();
      this.video.removeAttribute("src");
      URL.revokeObjectURL(this.#film);
      this.#film = "";
    }
    cancelAnimationFrame(this.#frame);
  }

  #wait(next: () => void): void {
    if ("requestVideoFrameCallback" in this.video) this.video.requestVideoFrameCallback(next);
    else this.#frame = requestAnimationFrame(next);
  }
}

function reason(error: unknown): string {
  const name = error instanceof DOMException ? error.name : "";
  if (name === "NotAllowedError" || name === "SecurityError")
    return "The camera was not allowed. Allow it in the browser's settings for this page, or use a file.";
  if (name === "NotFoundError" || name === "OverconstrainedError") return "No camera was found. Use a file instead.";
  if (name === "NotReadableError" || name === "AbortError")
    return "The camera is in use by another program. Close it, or use a file.";
  return `The camera could not be started: ${error instanceof Error ? error.message : String(error)}`;
}
