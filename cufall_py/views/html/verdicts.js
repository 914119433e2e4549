"use strict";
/** The verdicts of the page: how much of a stretch of time each GPU was bound by what, and how that is drawn. */
const verdictsOf = (of) => {
  const COLOURS = {
    "idle": "#aab4be", "launch-bound": "#e3a008", "memory-bound": "#2f7ed8", "tensor-bound": "#2a9d5c",
    "cuda-core-bound": "#d1483f", "waiting": "#8661c5", "latency-bound": "#41bfc4", "transfer-bound": "#d9659b",
    "mixed": "#8a7045", "unknown": "#59636e",
  };
  const ROW = 17, BAND = 13, TOP = 8; // pixels: of a GPU with its room, of its colours, above the first
  const WHOLE = 255; // all of a bin
  const N = of.classes.length;
  const text = atob(of.data);
  const bytes = Uint8Array.from(text, (sign) => sign.charCodeAt(0));

  /** Bytes by class of bins from one to before another, added up. */
  function summed(gpu, from, to) {
    const out = new Float64Array(N);
    for (let bin = from; bin < to; bin++) {
      for (let k = 0; k < N; k++) out[k] += bytes[(gpu * of.bins + bin) * N + k];
    }
    return out;
  }

  const binAt = (second) => Math.floor((second - of.start) / of.bin);

  /** The class that most of a bin was of, and its share; `measured`: of the bin. Null beyond the ends. */
  function at(gpu, second) {
    const bin = binAt(second);
    if (!(bin >= 0 && bin < of.bins)) return null;
    const parts = summed(gpu, bin, bin + 1);
    const most = parts.indexOf(Math.max(...parts));
    return { name: of.classes[most], share: parts[most] / WHOLE, measured: parts.some((part) => part > 0) };
  }

  /** Those that any bin has, in their order. */
  const present = of.classes.filter((_, k) => { for (let i = k; i < bytes.length; i += N) if (bytes[i]) return true; return false; });

  /** Lines across what was not measured. */
  function hatched(ctx, left, top, width, height, ratio, colour) {
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top, width, height);
    ctx.clip();
    ctx.strokeStyle = colour;
    ctx.lineWidth = ratio;
    ctx.beginPath();
    const step = 5 * ratio, first = Math.floor((left - height) / step) * step;
    for (let x = first; x < left + width; x += step) { ctx.moveTo(x, top + height); ctx.lineTo(x + height, top); }
    ctx.stroke();
    ctx.restore();
  }

  /** A GPU's bins as columns of its classes, from the bottom in their order; bins narrower than a pixel together. */
  function band(ctx, gpu, x, area, top, height, soft, ratio) {
    const { from, to, left, width } = area;
    hatched(ctx, left, top, width, height, ratio, soft);
    const pixel = (to - from) / width;
    const together = Math.max(1, Math.ceil(pixel / of.bin));
    const first = Math.max(0, Math.floor(binAt(from) / together) * together), last = Math.min(of.bins - 1, binAt(to));
    for (let bin = first; bin <= last; bin += together) {
      const end = Math.min(bin + together, of.bins);
      const a = Math.round(x(of.start + bin * of.bin)), b = Math.max(a + 1, Math.round(x(of.start + end * of.bin)));
      const parts = summed(gpu, bin, end);
      const whole = Math.max(WHOLE * (end - bin), parts.reduce((sum, part) => sum + part));
      let filled = 0;
      parts.forEach((part, k) => {
        if (!part) return;
        const low = top + height - (height * filled) / whole;
        filled += part;
        const high = top + height - (height * filled) / whole;
        ctx.fillStyle = COLOURS[of.classes[k]];
        ctx.fillRect(a, high, b - a, low - high);
      });
    }
  }

  return { COLOURS, ROW, BAND, TOP, at, band, present, frame: of.frame, bin: of.bin };
};
