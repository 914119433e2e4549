"use strict";
/** Bins of what is seen as points: the share of the memory's peak across, that of the tensor pipe's up. */
const rooflineOf = (of, page) => {
  const LEAST = 0.01, MOST = 100; // percent, on logarithmic axes; what is less lies on the edge
  const DECADES = [0.01, 0.1, 1, 10, 100];
  const HEIGHT = 340, WIDEST = 760, EDGE = { left: 58, right: 44, top: 30, bottom: 40 };
  const MOST_POINTS = 4000, NEAR = 10; // points that are drawn; pixels to the one that is told
  const canvas = document.createElement("canvas");
  const logarithm = (v) => Math.log10(Math.min(Math.max(v, LEAST), MOST) / LEAST) / Math.log10(MOST / LEAST);
  let points = [], size = { width: 0 };

  const x = (memory) => EDGE.left + (size.width - EDGE.left - EDGE.right) * logarithm(memory);
  const y = (tensor) => HEIGHT - EDGE.bottom - (HEIGHT - EDGE.top - EDGE.bottom) * logarithm(tensor);

  /** The innermost region that a stretch of time lies in, by its name; "" for none, or across the edge of one. */
  function regionOf(from, to) {
    let found = "";
    for (const [name, begin, end] of page.regions) if (begin <= from && to <= end) found = name;
    return found;
  }

  /** Bins that lie in what is seen, of the finest level of which there are few enough. */
  function bins() {
    const [from, to] = page.state.view, gpus = Math.max(1, page.state.gpus.filter(Boolean).length);
    const level = page.levelFor(of.tensor, to - from, MOST_POINTS / gpus), other = of.memory.levels[of.tensor.levels.indexOf(level)];
    const first = Math.max(0, Math.ceil((from - level.start) / level.bin - 1e-6));
    const last = Math.min(level.bins, Math.floor((to - level.start) / level.bin + 1e-6));
    const out = [];
    for (let bin = first; bin < last; bin++) {
      const second = level.start + bin * level.bin, region = regionOf(second, second + level.bin);
      page.state.gpus.forEach((on, gpu) => {
        const tensor = page.value(of.tensor, level, gpu, 1, bin), memory = page.value(of.memory, other, gpu, 1, bin);
        if (on && !Number.isNaN(tensor + memory)) out.push({ gpu, second, region, tensor, memory });
      });
    }
    return { points: out, bin: level.bin };
  }

  const percent = (v) => (v === LEAST ? "≤ .01 %" : `${v} %`);
  const moved = (memory) => (of.bytes_per_s / 1e9) * (memory / 100); // GB/s

  function draw() {
    const ratio = devicePixelRatio, ctx = canvas.getContext("2d");
    size = { width: Math.min(WIDEST, canvas.parentElement.clientWidth || WIDEST) };
    canvas.width = size.width * ratio;
    canvas.height = HEIGHT * ratio;
    canvas.style.width = `${size.width}px`;
    ctx.scale(ratio, ratio);
    const found = bins();
    points = found.points;
    axes(ctx);
    ctx.globalAlpha = Math.min(0.8, Math.max(0.25, 300 / Math.max(1, points.length)));
    for (const point of points) {
      ctx.fillStyle = page.colour(point.region);
      ctx.fillRect(x(point.memory) - 1.75, y(point.tensor) - 1.75, 3.5, 3.5);
    }
    ctx.globalAlpha = 1;
    roofs(ctx);
    return { bin: found.bin, regions: [...new Set(points.map((point) => point.region))] };
  }

  function axes(ctx) {
    ctx.font = "12px system-ui, sans-serif";
    ctx.textBaseline = "middle";
    for (const at of DECADES) {
      ctx.fillStyle = page.paint("--grid");
      ctx.fillRect(Math.round(x(at)), EDGE.top, 1, HEIGHT - EDGE.top - EDGE.bottom);
      ctx.fillRect(EDGE.left, Math.round(y(at)), size.width - EDGE.left - EDGE.right, 1);
      ctx.fillStyle = page.paint("--soft");
      ctx.textAlign = "right";
      ctx.fillText(percent(at), EDGE.left - 6, y(at));
      ctx.textAlign = "center";
      ctx.fillText(percent(at), x(at), HEIGHT - EDGE.bottom + 12);
      if (of.bytes_per_s) ctx.fillText(`${+moved(at).toPrecision(3)}${at === MOST ? " GB/s" : ""}`, x(at), EDGE.top - 12);
    }
    ctx.textAlign = "center";
    ctx.fillText("dram, of the peak", (EDGE.left + size.width - EDGE.right) / 2, HEIGHT - 10);
  }

  /** What can be reached of both peaks, and where both would take equally long. */
  function roofs(ctx) {
    const memory = 100 * of.reachable.memory, tensor = 100 * of.reachable.tensor;
    ctx.strokeStyle = page.paint("--ink");
    ctx.lineWidth = 1.25;
    ctx.beginPath();
    ctx.moveTo(x(memory), y(LEAST));
    ctx.lineTo(x(memory), y(tensor));
    ctx.lineTo(x(LEAST), y(tensor));
    ctx.stroke();
    ctx.setLineDash([2, 4]);
    const least = Math.max(LEAST, LEAST * (memory / tensor));
    ctx.beginPath();
    ctx.moveTo(x(least), y((least * tensor) / memory));
    ctx.lineTo(x(memory), y(tensor));
    ctx.stroke();
    ctx.setLineDash([]);
  }

  /** The point that is nearest to a place on the canvas, if one is near; `share` in percent. */
  function near(left, top) {
    let found = null, least = NEAR;
    for (const point of points) {
      const far = Math.hypot(x(point.memory) - left, y(point.tensor) - top);
      if (far <= least) [found, least] = [point, far];
    }
    return found;
  }

  return { canvas, draw, near, moved, x, y };
};
