// Steps and phases above the lines: bands with names, or shares of time where they are too many.

const STRIP = { height: 46, tick: 14, top: 20, band: 22, column: 4, label: 46 };

/** The phases as typed arrays in seconds, and questions to them. */
class Phases {
  constructor(data, timeline) {
    const second = (timeline.end_s - timeline.start_s) / timeline.ticks;
    this.names = data.names;
    this.timeline = timeline;
    this.shares = data.share_permille ?? null;
    this.phase = data.phase ?? [];
    this.start = Float64Array.from(data.start ?? [], (tick) => timeline.start_s + tick * second);
    this.end = Float64Array.from(this.start, (start, i) => start + data.length[i] * second);
  }

  get any() {
    return this.phase.length > 0 || this.shares !== null;
  }

  /** The name of the phase at a time, null outside of any or where it is not known. */
  at(time) {
    const i = countUpTo(this.start, time) - 1;
    return i >= 0 && time < this.end[i] ? this.names[this.phase[i]] : null;
  }

  /** First and last (exclusive) stretch that reaches into the view. */
  within(view) {
    const first = countUpTo(this.start, view.start) - 1;
    return [Math.max(first, 0), countUpTo(this.start, view.end)];
  }

  /** Per column of `count`, the part of the time in each phase: arrays by phase. */
  sharesIn(view, count) {
    const result = this.names.map(() => new Float64Array(count));
    const width = view.span / count;
    if (this.shares) return this.averages(view, count, result);
    const [first, last] = this.within(view);
    for (let i = first; i < last; i++) {
      const from = Math.max((this.start[i] - view.start) / width, 0);
      const to = Math.min((this.end[i] - view.start) / width, count);
      for (let column = Math.floor(from); column < to; column++) {
        const part = Math.min(to, column + 1) - Math.max(from, column);
        result[this.phase[i]][column] += part;
      }
    }
    return result;
  }

  averages(view, count, result) {
    const { start_s: start, end_s: end } = this.timeline;
    this.shares.forEach((shares, phase) => {
      const width = (end - start) / shares.length;
      for (let column = 0; column < count; column++) {
        const middle = view.start + ((column + 0.5) * view.span) / count;
        const place = Math.min(Math.floor((middle - start) / width), shares.length - 1);
        result[phase][column] = shares[place] / 1000;
      }
    });
    return result;
  }
}

/** The steps: numbers and the second in which each begins. */
class Steps {
  constructor(data, timeline) {
    const second = (timeline.end_s - timeline.start_s) / timeline.ticks;
    this.number = data.number;
    this.start = Float64Array.from(data.start, (tick) => timeline.start_s + tick * second);
  }

  at(time) {
    const i = countUpTo(this.start, time) - 1;
    return i >= 0 ? this.number[i] : null;
  }
}

/** Time, step and phase; known: {steps, phases}, or null. */
function momentInWords(time, known, view) {
  const parts = [moment(time, view.span)];
  const [step, phase] = [known?.steps.at(time) ?? null, known?.phases.at(time)];
  if (step !== null) parts.push(`step ${number(step)}`);
  if (phase) parts.push(phase);
  return parts.join(" · ");
}

/** A canvas over the whole width whose plot lies as those of the charts do. */
function makeStrip(view, phases, steps, colorOf) {
  const canvas = el("canvas", { class: "strip", "aria-hidden": "true" });
  const holder = el("div", { class: "strip-holder" }, canvas);

  function draw() {
    const width = holder.clientWidth;
    if (!width) return;
    const ratio = devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(STRIP.height * ratio);
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.font = FONT;
    const plot = { left: AXIS_WIDTH, width: width - AXIS_WIDTH - RIGHT_MARGIN };
    if (steps.number.length) drawSteps(context, view, steps, plot);
    if (phases.any) drawPhases(context, view, phases, plot, colorOf);
  }

  view.listeners.push(draw);
  themeListeners.push(draw);
  new ResizeObserver(draw).observe(holder);
  return holder;
}

function drawSteps(context, view, steps, plot) {
  const x = (time) => plot.left + ((time - view.start) / view.span) * plot.width;
  const first = Math.max(countUpTo(steps.start, view.start) - 1, 0);
  const last = countUpTo(steps.start, view.end);
  context.fillStyle = themeColor("quiet");
  context.strokeStyle = themeColor("quiet");
  context.lineWidth = 1;
  context.textBaseline = "top";
  context.textAlign = "right";
  context.fillText("step", plot.left - 8, 2);
  context.textAlign = "left";
  // The step that reaches into the view may have begun long before it, with the phase init.
  const shown = steps.start[last - 1] - Math.max(steps.start[first], view.start);
  const spacing = ((plot.width / view.span) * shown) / Math.max(last - 1 - first, 1);
  const stride = niceStride(STRIP.label / Math.max(spacing, 1e-9));
  let right = -Infinity;
  for (let i = first; i < last; i++) {
    const at = x(steps.start[i]);
    if (at < plot.left - 0.5) continue;
    const labelled = steps.number[i] % stride === 0 && at > right;
    if (labelled) {
      const text = number(steps.number[i]);
      if (at + 3 + context.measureText(text).width > plot.left + plot.width + RIGHT_MARGIN) continue;
      context.fillText(text, at + 3, 2);
      right = at + 10 + context.measureText(text).width;
    }
    if (labelled || spacing > 6) {
      context.beginPath();
      context.moveTo(Math.round(at) + 0.5, labelled ? 2 : STRIP.tick);
      context.lineTo(Math.round(at) + 0.5, STRIP.top);
      context.stroke();
    }
  }
}

/** 1, 2, 5, 10, 20, …: the first that is at least as large. */
function niceStride(least) {
  const magnitude = 10 ** Math.max(Math.floor(Math.log10(least)), 0);
  return [1, 2, 5, 10].find((factor) => factor * magnitude >= least) * magnitude;
}

function drawPhases(context, view, phases, plot, colorOf) {
  const [first, last] = phases.within(view);
  context.fillStyle = themeColor("quiet");
  context.textBaseline = "middle";
  context.textAlign = "right";
  context.fillText("phase", plot.left - 8, STRIP.top + STRIP.band / 2 + 1);
  context.save();
  context.beginPath();
  context.rect(plot.left, STRIP.top, plot.width, STRIP.band);
  context.clip();
  if (!phases.shares && last - first <= plot.width / 3) {
    drawBands(context, view, phases, plot, colorOf, first, last);
  } else {
    drawShares(context, view, phases, plot, colorOf);
  }
  context.restore();
}

function drawBands(context, view, phases, plot, colorOf, first, last) {
  const x = (time) => plot.left + ((time - view.start) / view.span) * plot.width;
  context.textBaseline = "middle";
  context.textAlign = "center";
  for (let i = first; i < last; i++) {
    const from = Math.max(x(phases.start[i]), plot.left);
    const to = Math.min(x(phases.end[i]), plot.left + plot.width);
    if (to <= from) continue;
    const name = phases.names[phases.phase[i]];
    const color = colorOf(name);
    context.fillStyle = color;
    context.fillRect(from, STRIP.top, Math.max(to - from, 0.5), STRIP.band);
    if (to - from > context.measureText(name).width + 8) {
      context.fillStyle = inkOn(color);
      context.fillText(name, (from + to) / 2, STRIP.top + STRIP.band / 2 + 1);
    }
  }
}

function drawShares(context, view, phases, plot, colorOf) {
  const count = Math.max(Math.floor(plot.width / STRIP.column), 1);
  const width = plot.width / count;
  const shares = phases.sharesIn(view, count);
  for (let column = 0; column < count; column++) {
    let bottom = STRIP.top + STRIP.band;
    phases.names.forEach((name, phase) => {
      const height = shares[phase][column] * STRIP.band;
      context.fillStyle = colorOf(name);
      context.fillRect(plot.left + column * width, bottom - height, width + 0.5, height);
      bottom -= height;
    });
  }
}
