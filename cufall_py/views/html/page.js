"use strict";
(() => {
  const doc = JSON.parse(document.getElementById("data").textContent);
  const [BEGIN, END] = doc.view;
  const COLOURS = [
    "#2f7ed8", "#e0761a", "#2a9d5c", "#c8457a", "#8661c5", "#a8842c", "#1aa3a3", "#d1483f",
    "#6b8fd6", "#d9a05b", "#7bb661", "#d58bb5", "#a592d8", "#8a7a55", "#62b8c4", "#b06a5e",
  ];
  const REGION_HUES = [215, 145, 35, 285, 180, 340, 80, 255];
  const LEAST_PERCENT = 0.01; // a logarithmic scale begins here: below it is nothing, or next to it
  const colourOf = (gpu) => COLOURS[gpu % COLOURS.length];
  const el = (id) => document.getElementById(id);
  const make = (tag, cls, text) => {
    const out = document.createElement(tag);
    if (cls) out.className = cls;
    if (text !== undefined) out.textContent = text;
    return out;
  };
  const paint = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // ---- numbers of the page ----

  function decode(text) {
    const bytes = atob(text);
    const out = new Uint16Array(bytes.length / 2);
    for (let k = 0; k < out.length; k++) out[k] = bytes.charCodeAt(2 * k) | (bytes.charCodeAt(2 * k + 1) << 8);
    return out;
  }

  /** One of 0 least, 1 mean, 2 greatest of a GPU's bin; NaN where nothing was measured. */
  function value(plot, level, gpu, which, bin) {
    level.numbers ??= decode(level.data);
    const number = level.numbers[(3 * gpu + which) * level.bins + bin];
    return number === doc.nothing ? NaN : (number / (doc.nothing - 1)) * plot.top;
  }

  const binAt = (level, second) => Math.floor((second - level.start) / level.bin);

  /** The finest level of which no bin is narrower than a pixel. */
  function levelFor(plot, seconds, pixels) {
    return plot.levels.find((level) => seconds / level.bin <= pixels) ?? plot.levels.at(-1);
  }

  const FINEST = Math.min(...doc.plots.map((plot) => plot.levels[0].bin));

  function shown(number, unit) {
    if (Number.isNaN(number)) return "–";
    if (unit === "%") {
      return number < 0.01 ? "<.01 %" : `${number.toFixed(number < 10 ? 2 : 1)} %`;
    }
    return `${Math.abs(number) >= 1000 ? Math.round(number).toLocaleString("en") : +number.toPrecision(4)}${unit && " " + unit}`;
  }

  function length(seconds) {
    const [unit, size] = seconds >= 1 ? ["s", 1] : seconds >= 1e-3 ? ["ms", 1e-3] : ["µs", 1e-6];
    return `${+(seconds / size).toPrecision(4)} ${unit}`;
  }

  // ---- time ----

  const OFFSET = -60 * new Date(doc.begin_ms).getTimezoneOffset(); // of local time, seconds
  const digitsOf = (step) => Math.max(0, Math.min(6, Math.ceil(-Math.log10(step) - 1e-9)));

  function clock(second, digits) {
    const scale = 10 ** digits;
    const local = Math.round((doc.begin_ms / 1000 + OFFSET + second) * scale);
    const whole = Math.floor(local / scale);
    const two = (n) => String(n).padStart(2, "0");
    const day = ((whole % 86400) + 86400) % 86400;
    const part = digits ? "." + String(local - whole * scale).padStart(digits, "0") : "";
    return `${two(Math.floor(day / 3600))}:${two(Math.floor(day / 60) % 60)}:${two(day % 60)}${part}`;
  }

  const STEPS = [];
  for (let power = -6; power < 0; power++) for (const k of [1, 2, 5]) STEPS.push(k * 10 ** power);
  STEPS.push(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200);
  for (let days = 1; days < 1e5; days *= 2) STEPS.push(86400 * days);

  /** Multiples of the step, of local time or of seconds from the begin. */
  function ticks(from, to, step, zero) {
    const out = [];
    for (let k = Math.ceil((from - zero) / step - 1e-9); k * step + zero <= to + step * 1e-9; k++) out.push(k * step + zero);
    return out;
  }
  const MIDNIGHT = -((((doc.begin_ms / 1000 + OFFSET) % 86400) + 86400) % 86400);

  // ---- what is drawn ----

  const state = {
    view: [BEGIN, END],
    gpus: doc.gpus.map(() => true),
    scale: "0–100 %",
    theme: "auto",
    busy: false,
  };
  let roofline = null; // { draw, cloud }
  const panels = []; // { label, plot, section, canvas, chart, cells, on }; without a plot: the lane, the verdicts
  const verdicts = doc.verdicts && verdictsOf(doc.verdicts);

  function names() {
    return [...new Set(doc.regions.map((region) => region[0]))];
  }
  const HUE = Object.fromEntries(names().map((name, k) => [name, REGION_HUES[k % REGION_HUES.length]]));

  /** Each region's row: the first in which there is room, so that nested ones lie below each other. */
  const rows = (() => {
    const ends = [];
    return doc.regions.map(([, from, to]) => {
      let row = ends.findIndex((end) => end <= from);
      if (row < 0) row = ends.length < 4 ? ends.length : 3;
      ends[row] = Math.max(ends[row] ?? 0, to);
      return row;
    });
  })();
  const ROWS = doc.regions.length ? 1 + Math.max(...rows) : 0;

  function across(u) {
    const { left, width } = u.bbox;
    const { min, max } = u.scales.x;
    return (second) => left + (width * (second - min)) / (max - min);
  }

  function clipped(u, draw) {
    const { left, top, width, height } = u.bbox;
    u.ctx.save();
    u.ctx.beginPath();
    u.ctx.rect(left, top, width, height);
    u.ctx.clip();
    draw(u.ctx, across(u), u.bbox);
    u.ctx.restore();
  }

  function shadeRegions(u) {
    clipped(u, (ctx, x, { top, height }) => {
      for (const [name, from, to] of doc.regions) {
        if (to < u.scales.x.min || u.scales.x.max < from) continue;
        ctx.fillStyle = `hsla(${HUE[name]}, 70%, 50%, .07)`;
        ctx.fillRect(x(from), top, Math.max(1, x(to) - x(from)), height);
      }
    });
  }

  function drawLane(u) {
    const ratio = devicePixelRatio;
    clipped(u, (ctx, x, { left, top, width }) => {
      ctx.textBaseline = "middle";
      ctx.textAlign = "left";
      ctx.font = `${12 * ratio}px system-ui, sans-serif`;
      doc.regions.forEach(([name, from, to], k) => {
        if (to < u.scales.x.min || u.scales.x.max < from) return;
        const a = Math.max(x(from), left), b = Math.min(Math.max(x(to), a + 1), left + width);
        const y = top + rows[k] * 20 * ratio;
        ctx.fillStyle = `hsla(${HUE[name]}, 65%, 50%, .28)`;
        ctx.fillRect(a, y + ratio, b - a, 18 * ratio);
        const room = b - a - 10 * ratio;
        if (room > 14 * ratio) {
          ctx.fillStyle = paint("--ink");
          ctx.fillText(fitted(ctx, name, room), a + 5 * ratio, y + 10 * ratio);
        }
      });
      ctx.fillStyle = paint("--mark");
      for (const [gpu, from, to] of doc.gaps) {
        if (state.gpus[gpu]) ctx.fillRect(x(from), top + ROWS * 20 * ratio + ratio, Math.max(ratio, x(to) - x(from)), 5 * ratio);
      }
    });
  }

  function drawVerdicts(u) {
    const ratio = devicePixelRatio, shown = doc.gpus.map((_, gpu) => gpu).filter((gpu) => state.gpus[gpu]);
    const top = (row) => u.bbox.top + row * verdicts.ROW * ratio + 2 * ratio;
    clipped(u, (ctx, x, { left, width }) => {
      const area = { from: u.scales.x.min, to: u.scales.x.max, left, width };
      shown.forEach((gpu, row) => verdicts.band(ctx, gpu, x, area, top(row), verdicts.BAND * ratio, paint("--soft"), ratio));
    });
    u.ctx.save();
    u.ctx.font = `${12 * ratio}px system-ui, sans-serif`;
    u.ctx.fillStyle = paint("--soft");
    u.ctx.textAlign = "right";
    u.ctx.textBaseline = "middle";
    shown.forEach((gpu, row) => u.ctx.fillText(doc.gpus[gpu].label, u.bbox.left - 6 * ratio, top(row) + (verdicts.BAND / 2) * ratio));
    u.ctx.restore();
  }

  function fitted(ctx, text, room) {
    if (ctx.measureText(text).width <= room) return text;
    let kept = text;
    while (kept && ctx.measureText(kept + "…").width > room) kept = kept.slice(0, -1);
    return kept && kept + "…";
  }

  const isLog = (plot) => plot.unit === "%" && state.scale === "log";

  /** Where a panel's values lie on its canvas; on a logarithmic scale nothing lies at its least. */
  function heights(u, panel) {
    const floor = isLog(panel.plot) ? LEAST_PERCENT : -Infinity;
    return (v) => u.valToPos(Math.max(v, floor), "y", true);
  }

  /** Call with each bin that is seen and was measured, and whether the one before was too. */
  function eachBin(u, panel, gpu, act) {
    const { plot, level } = panel, x = across(u);
    const first = Math.max(0, binAt(level, u.scales.x.min)), last = Math.min(level.bins - 1, binAt(level, u.scales.x.max));
    let joined = false;
    for (let k = first; k <= last; k++) {
      const known = !Number.isNaN(value(plot, level, gpu, 1, k));
      if (known) act(k, x(level.start + k * level.bin), x(level.start + (k + 1) * level.bin), joined);
      joined = known;
    }
  }

  /** Boxes from the least to the greatest sample of each bin, below all lines; fainter the more GPUs there are. */
  function drawBands(u, panel) {
    const many = state.gpus.filter(Boolean).length, y = heights(u, panel), { plot, level } = panel;
    clipped(u, (ctx) => {
      ctx.globalAlpha = Math.max(0.06, 0.26 / Math.sqrt(many));
      state.gpus.forEach((on, gpu) => {
        if (!on) return;
        ctx.fillStyle = colourOf(gpu);
        eachBin(u, panel, gpu, (k, from, to) => {
          const high = y(value(plot, level, gpu, 2, k)), low = y(value(plot, level, gpu, 0, k));
          const left = Math.round(from); // whole pixels: boxes beside each other leave no seam
          if (low - high > 0.5) ctx.fillRect(left, high, Math.max(Math.round(to) - left, 1), low - high);
        });
      });
    });
  }

  /** The line of a GPU: a stair of means, broken where nothing was measured. */
  function stair(panel, gpu) {
    return (u) => {
      const stroke = new Path2D(), y = heights(u, panel);
      eachBin(u, panel, gpu, (k, from, to, joined) => {
        const at = y(value(panel.plot, panel.level, gpu, 1, k));
        if (joined) stroke.lineTo(from, at); else stroke.moveTo(from, at);
        stroke.lineTo(to, at);
      });
      return { stroke, fill: null, clip: null, band: null, gaps: null, flags: 0 };
    };
  }

  /** Least and greatest of what is seen. */
  function extent(panel) {
    const { plot, level } = panel;
    let least = Infinity, most = -Infinity;
    const first = Math.max(0, binAt(level, state.view[0])), last = Math.min(level.bins - 1, binAt(level, state.view[1]));
    state.gpus.forEach((on, gpu) => {
      for (let k = first; on && k <= last; k++) {
        const low = value(plot, level, gpu, 0, k), high = value(plot, level, gpu, 2, k);
        if (low < least) least = low;
        if (high > most) most = high;
      }
    });
    return [least, most];
  }

  function range(panel) {
    const { plot } = panel;
    if (isLog(plot)) return [LEAST_PERCENT, Math.max(100, plot.top)];
    if (plot.unit === "%" && state.scale !== "fit") return [0, Math.max(plot.full, plot.top)];
    const [least, most] = extent(panel);
    if (!(most >= least)) return [0, 1];
    const from = plot.unit === "%" || least < most / 2 ? 0 : least - 0.1 * (most - least || most);
    return [from, most + 0.06 * (most - from || 1)];
  }

  const AXIS = { font: "12px system-ui, sans-serif", stroke: () => paint("--soft"), ticks: { show: false } };
  const GRID = { stroke: () => paint("--grid"), width: 1 };

  function localAxis(extra) {
    return {
      ...AXIS, size: 24, gap: 4, space: 96, incrs: STEPS, grid: GRID,
      splits: (u, k, from, to, step) => ticks(from, to, step, MIDNIGHT),
      values: (u, at, k, space, step) => at.map((second) => clock(second, digitsOf(step))),
      ...extra,
    };
  }

  const secondsAxis = {
    ...AXIS, side: 0, size: 22, gap: 4, space: 80, incrs: STEPS, grid: { show: false },
    splits: (u, k, from, to, step) => ticks(from, to, step, 0),
    values: (u, at, k, space, step) => at.map((second) => `${second.toFixed(digitsOf(step))} s`),
  };

  const LARGE = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 });

  /** A number of an axis, of no more characters than it has room for. */
  const onAxis = (number) => (Math.abs(number) >= 1e5 ? LARGE.format(number) : `${+number.toPrecision(6)}`);

  function valueAxis(panel) {
    const { plot } = panel;
    return {
      ...AXIS, size: 58, gap: 6, grid: GRID, space: 26,
      ...(isLog(plot) && { splits: () => [0.01, 0.1, 1, 10, 100].filter((v) => v <= Math.max(100, plot.top)) }),
      values: (u, at) => at.map((v) => (v === null ? "" : isLog(plot) && v === LEAST_PERCENT ? "≤ .01 %" : onAxis(v) + (plot.unit === "%" ? " %" : ""))),
    };
  }

  const CURSOR = {
    y: false,
    points: { show: false },
    drag: { x: true, y: false, setScale: false, dist: 4 },
    sync: { key: "time", setSeries: false },
    bind: {
      mousedown: (u, over, handler) => (event) => (event.button === 0 && !event.shiftKey ? handler(event) : startMove(u, event)),
      dblclick: () => () => setView(BEGIN, END),
    },
  };

  function heightOf(panel) {
    if (panel.plot) return panel.plot.unit === "%" ? 208 : 130;
    if (panel.draw === drawVerdicts) return verdicts.TOP + Math.max(1, state.gpus.filter(Boolean).length) * verdicts.ROW;
    return 22 + ROWS * 20 + (doc.gaps.length ? 8 : 0) + 4;
  }

  function options(panel, width) {
    const lane = !panel.plot, strip = panel.draw === drawVerdicts;
    return {
      width, height: heightOf(panel),
      padding: [strip ? verdicts.TOP : lane ? 0 : 8, 30, 0, lane ? 58 : 0],
      legend: { show: false },
      cursor: CURSOR,
      scales: {
        x: { time: false, range: () => state.view },
        y: lane ? { range: () => [0, 1] } : { distr: isLog(panel.plot) ? 3 : 1, range: () => range(panel) },
      },
      axes: strip ? [{ show: false }, { show: false }] : lane ? [secondsAxis, { show: false }] : [localAxis(), valueAxis(panel)],
      series: lane ? [{}, { show: false }] : [{}, ...doc.gpus.map((gpu, k) => ({
        label: gpu.label,
        show: state.gpus[k],
        stroke: colourOf(k),
        width: 1.25,
        dash: k < COLOURS.length / 2 ? undefined : [6, 3],
        paths: stair(panel, k),
        points: { show: false },
      }))],
      hooks: {
        drawClear: lane ? [] : [shadeRegions],
        drawAxes: lane ? [] : [(u) => drawBands(u, panel)],
        draw: lane ? [panel.draw] : [],
        setSelect: [(u) => {
          // a drag is told to every plot: only that under the pointer acts on it
          if (u.select.width < 4 || !u.cursor.event) return;
          const from = u.posToVal(u.select.left, "x"), to = u.posToVal(u.select.left + u.select.width, "x");
          setView(from, to);
        }],
        setCursor: [() => tell(panel)],
      },
    };
  }

  function data(panel) {
    if (!panel.plot) return [state.view, [null, null]];
    // uPlot's own numbers serve its cursor alone; the paths read the level
    return [state.view, ...doc.gpus.map(() => [0, 0])];
  }

  function widthOf(panel) {
    return Math.max(200, Math.floor(panel.canvas.getBoundingClientRect().width));
  }

  function pickLevel(panel, width) {
    if (panel.plot) panel.level = levelFor(panel.plot, state.view[1] - state.view[0], Math.max(100, width - 70));
  }

  function build(panel) {
    panel.chart?.destroy();
    panel.chart = null;
    panel.section.hidden = !panel.on;
    if (!panel.on) return;
    const width = widthOf(panel);
    pickLevel(panel, width);
    panel.chart = new uPlot(options(panel, width), data(panel), panel.canvas);
    listen(panel.chart);
  }

  const buildAll = () => { panels.forEach(build); told(); roofline?.draw(); };

  function refresh() {
    for (const panel of panels) {
      if (!panel.chart) continue;
      pickLevel(panel, panel.chart.width);
      panel.chart.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
      panel.chart.setData(data(panel), true);
    }
    told();
    roofline?.draw();
  }

  let due = 0;
  function setView(from, to) {
    const least = Math.min(4 * FINEST, END - BEGIN);
    let width = Math.min(Math.max(to - from, least), END - BEGIN);
    let begin = (from + to - width) / 2;
    begin = Math.min(Math.max(begin, BEGIN), END - width);
    state.view = [begin, begin + width];
    due ||= requestAnimationFrame(() => { due = 0; refresh(); });
  }

  function zoom(factor, around) {
    const [from, to] = state.view;
    const at = around ?? (from + to) / 2;
    setView(at - (at - from) * factor, at + (to - at) * factor);
  }

  function move(share) {
    const [from, to] = state.view;
    const by = Math.min(Math.max(share * (to - from), BEGIN - from), END - to);
    setView(from + by, to + by);
  }

  // ---- pointer and keys ----

  function secondAt(u, event) {
    return u.posToVal(event.clientX - u.over.getBoundingClientRect().left, "x");
  }

  function startMove(u, event) {
    let last = event.clientX;
    const drag = (e) => { move((last - e.clientX) / u.over.clientWidth); last = e.clientX; };
    const end = () => { removeEventListener("mousemove", drag); removeEventListener("mouseup", end); };
    addEventListener("mousemove", drag);
    addEventListener("mouseup", end);
  }

  function listen(u) {
    const fingers = new Map();
    u.over.addEventListener("wheel", (event) => {
      event.preventDefault();
      const sideways = event.shiftKey ? event.deltaY : event.deltaX;
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) move(sideways / u.over.clientWidth);
      else zoom(Math.exp(Math.max(-400, Math.min(400, event.deltaY)) * 0.002), secondAt(u, event));
    }, { passive: false });
    u.over.addEventListener("pointerdown", (event) => { if (event.pointerType === "touch") fingers.set(event.pointerId, event.clientX); });
    u.over.addEventListener("pointermove", (event) => {
      if (!fingers.has(event.pointerId)) return;
      const before = [...fingers.values()];
      fingers.set(event.pointerId, event.clientX);
      const after = [...fingers.values()];
      if (after.length === 1) move((before[0] - after[0]) / u.over.clientWidth);
      else zoom(Math.abs(before[0] - before[1]) / Math.max(1, Math.abs(after[0] - after[1])), secondAt(u, { clientX: (after[0] + after[1]) / 2 }));
    });
    for (const kind of ["pointerup", "pointercancel"]) u.over.addEventListener(kind, (event) => fingers.delete(event.pointerId));
  }

  const KEYS = {
    ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), "+": () => zoom(0.6), "=": () => zoom(0.6),
    "-": () => zoom(1 / 0.6), 0: () => setView(BEGIN, END),
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key] || document.activeElement?.closest(".summary")) return;
    event.preventDefault();
    KEYS[event.key]();
  });

  // ---- what is under the cursor ----

  function tell(panel) {
    const u = panel.chart;
    const left = u?.cursor.left ?? -1;
    const second = left >= 0 ? u.posToVal(left, "x") : null;
    if (panel.draw === drawVerdicts) tellVerdicts(panel, second);
    else if (panel.cells) {
      const bin = second === null ? -1 : binAt(panel.level, second);
      panel.cells.forEach(([item, mean, span], gpu) => {
        item.hidden = !state.gpus[gpu];
        const known = bin >= 0 && bin < panel.level.bins;
        const [low, mid, high] = [0, 1, 2].map((which) => (known ? value(panel.plot, panel.level, gpu, which, bin) : NaN));
        const unit = panel.plot.unit === "%" ? "%" : "";
        mean.textContent = known ? shown(mid, unit) : "";
        span.textContent = known && !Number.isNaN(mid) ? `${shown(low, unit).replace(" %", "")}–${shown(high, unit).replace(" %", "")}` : "";
      });
    } else told(second);
  }

  function tellVerdicts(panel, second) {
    panel.cells.forEach(([item, name, share], gpu) => {
      item.hidden = !state.gpus[gpu];
      const found = second === null ? null : verdicts.at(gpu, second);
      name.textContent = !found ? "" : found.measured ? found.name : "not measured";
      share.textContent = found?.measured && found.share < 0.995 ? `${Math.max(1, Math.round(100 * found.share))} %` : "";
    });
  }

  function told(second = null) {
    const drawn = panels.filter((panel) => panel.chart && panel.plot);
    const bins = [...new Set(drawn.map((panel) => length(panel.level.bin)))].join(", ");
    const finest = drawn.some((panel) => panel.level === panel.plot.levels[0] && panel.plot.levels[0].bin === FINEST);
    const now = el("now");
    now.textContent = "";
    const width = state.view[1] - state.view[0];
    now.append(`${length(width)} in bins of ${bins}${finest ? ", the finest there are" : ""}`);
    if (second === null) return;
    const inside = doc.regions.filter(([, from, to]) => from <= second && second < to);
    now.prepend(make("b", "", `${clock(second, Math.max(3, digitsOf(width / 1000)))}, ${second.toFixed(Math.max(3, digitsOf(width / 1000)))} s`), " · ");
    if (inside.length) now.append(" · ", make("b", "", inside.map(([name]) => name).join(", ")), inside.at(-1)[3] ? ` ${inside.at(-1)[3]}` : "");
  }

  // ---- switches ----

  const themed = (theme) => { document.documentElement.dataset.theme = theme === "auto" ? "" : theme; };

  function button(parent, text, pressed, act, colour) {
    const out = make("button", "", undefined);
    out.type = "button";
    if (colour) { const swatch = make("i"); swatch.style.background = colour; out.append(swatch); }
    out.append(text);
    if (pressed !== undefined) out.setAttribute("aria-pressed", pressed);
    out.addEventListener("click", act);
    parent.append(out);
    return out;
  }

  function press(buttons, on) {
    buttons.forEach((each, k) => each.setAttribute("aria-pressed", on(k)));
  }

  function switches() {
    const gpus = doc.gpus.map((gpu, k) => button(el("gpus"), gpu.label, true, (event) => {
      const alone = state.gpus.every((on, other) => on === (other === k));
      state.gpus = event.altKey ? state.gpus.map((_, other) => alone || other === k) : state.gpus.map((on, other) => (other === k ? !on : on));
      press(gpus, (other) => state.gpus[other]);
      buildAll();
      panels.forEach(tell);
    }, colourOf(k)));
    gpus.forEach((each, k) => { each.title = doc.gpus[k].name; });
    const drawn = panels.filter((panel) => panel.label);
    const metrics = drawn.map((panel, k) => button(el("metrics"), panel.label, true, () => {
      panel.on = !panel.on;
      press(metrics, (other) => drawn[other].on);
      build(panel);
      told();
    }));
    const SCALES = ["0–100 %", "fit", "log"];
    const scales = SCALES.map((name) => button(el("scale"), name, name === state.scale, () => {
      state.scale = name;
      press(scales, (other) => SCALES[other] === name);
      buildAll();
    }));
    button(el("move"), "−", undefined, () => zoom(2)).setAttribute("aria-label", "zoom out");
    button(el("move"), "+", undefined, () => zoom(0.5)).setAttribute("aria-label", "zoom in");
    button(el("move"), "all", undefined, () => setView(BEGIN, END));
    const THEMES = ["auto", "light", "dark"];
    const theme = () => {
      themed(state.theme);
      el("theme").textContent = `theme: ${state.theme}`;
      panels.forEach((panel) => panel.chart?.redraw(false));
      roofline?.draw();
    };
    el("theme").addEventListener("click", () => {
      state.theme = THEMES[(THEMES.indexOf(state.theme) + 1) % THEMES.length];
      theme();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", theme);
    theme();
  }

  /** A panel below the others: of a plot with its title, or of what `draw` draws. */
  function add({ label = "", plot, draw, title, note, below }) {
    const section = make("section", plot ? "plot" : label ? "plot strip" : "plot lane");
    const row = make("div", "row"), canvas = make("div", "canvas"), list = make("ol", "values");
    const panel = { label, plot, draw, section, canvas, on: true };
    if (title) {
      const head = make("h2", "", title);
      if (note) head.append(make("small", "", note));
      section.append(head);
      panel.cells = cells(list);
    }
    row.append(canvas, list);
    section.append(row, ...(below ? [below] : []));
    el("plots").append(section);
    panels.push(panel);
  }

  /** A line a GPU for what is under the cursor. */
  function cells(list) {
    return doc.gpus.map((gpu, k) => {
      const item = make("li"), of = make("span", "of", gpu.label), mean = make("span", "mean"), span = make("span", "span");
      of.style.setProperty("--of", colourOf(k));
      item.append(of, mean, span);
      list.append(item);
      return [item, mean, span];
    });
  }

  function addPlot(plot) {
    add({ label: plot.label, plot, title: plot.label + (plot.unit && plot.unit !== "%" ? `, ${plot.unit}` : ""), note: plot.formula });
  }

  function addVerdicts() {
    const legend = make("ul", "legend");
    for (const name of verdicts.present) {
      const item = make("li", "", name);
      item.style.setProperty("--of", verdicts.COLOURS[name]);
      legend.append(item);
    }
    legend.append(make("li", "unmeasured", "not measured"));
    const binned = verdicts.bin > verdicts.frame ? `, in bins of ${length(verdicts.bin)}: each class by its share` : "";
    add({ label: "verdict", draw: drawVerdicts, title: "verdict", note: `of frames of ${length(verdicts.frame)}${binned}`, below: legend });
  }

  /** A point a bin, in the colour of its region. */
  function addRoofline({ tensor, memory, ...more }) {
    const section = make("section", "roofline"), told = make("p", "now"), legend = make("ul", "legend");
    const colour = (name) => (name ? `hsl(${HUE[name]}, 65%, 50%)` : paint("--soft"));
    const cloud = rooflineOf({ tensor: doc.plots[tensor], memory: doc.plots[memory], ...more },
      { state, regions: doc.regions, value, levelFor, colour, paint });
    const head = make("h2", "", "tensor over dram"), note = make("small");
    head.append(note);
    const roofs = `tensor ${100 * more.reachable.tensor} %, dram ${100 * more.reachable.memory} %`;
    const notes = make("p", "notes", `Lines: what can be reached (${roofs}), and dotted where both would take equally long. `
      + "The pipe's share is of its cycles, not of operations that were counted: no FLOP/s follows from it.");
    section.append(head, cloud.canvas, legend, told, notes);
    el("plots").append(section);
    const draw = () => {
      const { bin, regions } = cloud.draw();
      note.textContent = `a point a GPU and bin of ${length(bin)} of what is seen above`;
      legend.replaceChildren(...regions.map((name) => {
        const item = make("li", "", name || "in no region, or across an edge");
        item.style.setProperty("--of", colour(name));
        return item;
      }));
    };
    cloud.canvas.addEventListener("mousemove", (event) => {
      const found = cloud.near(event.offsetX, event.offsetY);
      const moved = found && more.bytes_per_s ? `, ${+cloud.moved(found.memory).toPrecision(4)} GB/s` : "";
      told.textContent = found ? `${doc.gpus[found.gpu].label}, ${clock(found.second, 3)}${found.region && `, ${found.region}`}: `
        + `dram ${shown(found.memory, "%")}${moved}, tensor ${shown(found.tensor, "%")}` : "";
    });
    roofline = { draw, cloud };
  }

  function fit(width) {
    for (const panel of panels) {
      if (!panel.chart) continue;
      const to = width ?? widthOf(panel);
      pickLevel(panel, to);
      panel.chart.setSize({ width: to, height: panel.chart.height });
    }
    roofline?.draw();
  }

  const date = new Date(doc.begin_ms + 1000 * BEGIN);
  el("when").textContent = date.toLocaleString("sv", { timeZoneName: "short" });
  add({ draw: drawLane });
  doc.plots.slice(0, 1).forEach(addPlot);
  if (verdicts) addVerdicts(); // below what it explains
  doc.plots.slice(1).forEach(addPlot);
  if (doc.roofline) addRoofline(doc.roofline);
  buildAll();
  switches();
  queueMicrotask(() => performance.mark("drawn")); // uPlot draws in microtasks that were queued before
  let resizing = 0;
  addEventListener("resize", () => { resizing ||= requestAnimationFrame(() => { resizing = 0; fit(); }); });
  addEventListener("beforeprint", () => {
    themed("light");
    fit(Math.max(680, Math.ceil(0.8 * document.querySelector("table").offsetWidth))); // the table's letters are smaller there
  });
  addEventListener("afterprint", () => { themed(state.theme); fit(); });
  window.cufall = { state, panels, roofline, setView, zoom, move }; // for who looks at it from outside, such as its test
})();
