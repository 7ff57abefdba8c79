// The stretch of the run that all charts over time show.

class TimeView {
  /** least: the shortest stretch, below which there is no more to see (seconds). */
  constructor(start, end, least) {
    this.first = start;
    this.last = Math.max(end, start + 1e-9);
    this.least = Math.min(least, this.last - this.first);
    [this.start, this.end] = [this.first, this.last];
    this.listeners = [];
  }

  get span() {
    return this.end - this.start;
  }

  set(start, end) {
    const whole = this.last - this.first;
    const span = Math.min(Math.max(end - start, this.least), whole);
    const middle = (start + end) / 2;
    this.start = Math.min(Math.max(middle - span / 2, this.first), this.last - span);
    this.end = this.start + span;
    for (const listener of this.listeners) listener();
  }

  whole() {
    this.set(this.first, this.last);
  }

  /** Show `factor` times as much; `around` stays where it is. */
  zoom(factor, around = (this.start + this.end) / 2) {
    const factorThatFits = Math.max(this.least / this.span, factor);
    this.set(
      around - (around - this.start) * factorThatFits,
      around + (this.end - around) * factorThatFits,
    );
  }

  /** Move by a part of what is shown. */
  pan(part) {
    this.set(this.start + part * this.span, this.end + part * this.span);
  }
}

/** Mouse and fingers over the plot of a chart move the view. The page still scrolls. */
function steerWithPointer(chart, view) {
  const over = chart.over;
  const timeAt = (x) => chart.posToVal(x - over.getBoundingClientRect().left, "x");
  over.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return;
      event.preventDefault();
      const turned = event.deltaY || event.deltaX;
      if (event.shiftKey) view.pan(Math.sign(turned) * 0.1);
      else view.zoom(turned > 0 ? 1.25 : 0.8, timeAt(event.clientX));
    },
    { passive: false },
  );
  over.addEventListener("dblclick", () => view.whole());

  const fingers = new Map();
  over.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "touch") fingers.set(event.pointerId, event.clientX);
  });
  over.addEventListener("pointermove", (event) => {
    if (!fingers.has(event.pointerId)) return;
    const others = [...fingers].filter(([id]) => id !== event.pointerId);
    const [before, now] = [fingers.get(event.pointerId), event.clientX];
    if (others.length) {
      const [, other] = others[0];
      const factor = Math.abs(before - other) / Math.max(Math.abs(now - other), 1);
      view.zoom(Math.min(Math.max(factor, 0.5), 2), timeAt((now + other) / 2));
    } else {
      view.pan((before - now) / over.clientWidth);
    }
    fingers.set(event.pointerId, now);
  });
  for (const end of ["pointerup", "pointercancel", "pointerleave"]) {
    over.addEventListener(end, (event) => fingers.delete(event.pointerId));
  }
}
