// An address space over time: a column per instant, a row per stretch of addresses.

const MAP_HEIGHT = 300;
const NOT_RESERVED = -1;

/** map: {time (seconds), rows, row_bytes, use_percent, ranges}. */
function makeSegmentMap(map, device, view, describe) {
  const holder = el("div", { class: "chart" });
  const where = el("p", { class: "readout", role: "status" });
  const total = map.rows * map.row_bytes;
  const columns = map.time.length;
  let picture = null;

  /** One pixel per cell, in the colours of the theme; row 0, the lowest address, at the bottom. */
  function paint() {
    picture = el("canvas", { width: columns, height: map.rows });
    const context = picture.getContext("2d");
    const image = context.createImageData(columns, map.rows);
    const [free, used] = [rgb(themeColor("free")), rgb(themeColor("used"))];
    for (let column = 0; column < columns; column++) {
      for (let row = 0; row < map.rows; row++) {
        const percent = map.use_percent[column * map.rows + row];
        const at = 4 * ((map.rows - 1 - row) * columns + column);
        if (percent === NOT_RESERVED) continue;
        for (let part = 0; part < 3; part++) {
          image.data[at + part] = free[part] + ((used[part] - free[part]) * percent) / 100;
        }
        image.data[at + 3] = 255;
      }
    }
    context.putImageData(image, 0, 0);
  }

  function draw(u) {
    const { ctx: context, bbox } = u;
    if (!picture) paint();
    context.save();
    context.beginPath();
    context.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    context.clip();
    context.imageSmoothingEnabled = false;
    const first = Math.max(countUpTo(map.time, view.start) - 1, 0);
    const last = countUpTo(map.time, view.end);
    const top = u.valToPos(total, "y", true);
    const height = u.valToPos(0, "y", true) - top;
    for (let column = first; column < last; column++) {
      const left = u.valToPos(map.time[column], "x", true);
      const right = u.valToPos(column + 1 < columns ? map.time[column + 1] : view.last, "x", true);
      context.drawImage(picture, column, 0, 1, map.rows, left, top, Math.max(right - left, 1), height);
    }
    drawRanges(u, map);
    context.restore();
  }

  /** Time, address and use of the place under the cursor. */
  function read(u) {
    const { left, top } = u.cursor;
    if (left < 0 || top < 0) return void (where.textContent = "");
    tell(u.posToVal(left, "x"), u.posToVal(top, "y"));
  }

  function tell(time, offset) {
    const column = countUpTo(map.time, time) - 1;
    const row = Math.min(Math.max(Math.floor(offset / map.row_bytes), 0), map.rows - 1);
    const percent = column < 0 ? NOT_RESERVED : map.use_percent[column * map.rows + row];
    const use = percent === NOT_RESERVED ? "not reserved" : `${percent} % in use`;
    where.textContent = [describe(time), addressAt(map, row * map.row_bytes), use].filter(Boolean).join(" · ");
  }

  const options = {
    height: MAP_HEIGHT,
    cursor: timeCursor(true),
    scales: {
      x: { time: false, range: () => [view.start, view.end] },
      y: { range: () => [0, total] },
    },
    axes: [axis({ values: timeTicks, space: 64, size: 32, grid: { show: false } }), { ...byteAxis(), grid: { show: false } }],
    series: [{}, { show: false }],
    hooks: {
      draw: [draw],
      setCursor: [read],
      setSelect: [dragToZoom(view)],
    },
  };
  const data = () => [[view.start, view.end], [null, null]];
  let chart = null;
  let at = [view.start, total / 2];
  const move = (byTime, byRows) => () => {
    at = [
      Math.min(Math.max(at[0] + byTime * view.span, view.start), view.end),
      Math.min(Math.max(at[1] + byRows * map.row_bytes, 0), total),
    ];
    chart.setCursor({ left: chart.valToPos(at[0], "x"), top: chart.valToPos(at[1], "y") });
    tell(...at);
  };
  focusable(
    holder,
    `Addresses of cuda:${device} over time. ${KEYS_HELP}`,
    {
      ArrowLeft: move(-0.01, 0),
      ArrowRight: move(0.01, 0),
      ArrowUp: move(0, 1),
      ArrowDown: move(0, -1),
      ...viewKeys(view, () => at[0]),
    },
  );
  function attach() {
    themeListeners.push(() => (picture = null));
    chart = makeChart(holder, options, data());
    steerWithPointer(chart, view);
    view.listeners.push(() =>
      chart.batch(() => {
        chart.setData(data(), false);
        chart.setScale("x", { min: view.start, max: view.end });
      }),
    );
    return chart;
  }
  return { root: el("div", { class: "device" }, holder, el("div", { class: "under" }, mapKeys(), where)), attach };
}

function mapKeys() {
  const keys = [["used", "in use"], ["free", "free, kept by the allocator"], ["surface", "not reserved"]];
  return el(
    "ul",
    { class: "keys bare", "aria-label": "Colours of the map" },
    keys.map(([name, text]) => el("li", {}, el("span", { class: `swatch ${name}`, "aria-hidden": "true" }), text)),
  );
}

/** Thin lines between stretches of addresses that do not touch, where they are few enough. */
function drawRanges(chart, map) {
  if (map.ranges.length > 60) return;
  const { ctx: context, bbox } = chart;
  context.strokeStyle = themeColor("surface");
  context.lineWidth = devicePixelRatio || 1;
  let offset = 0;
  for (const [, size] of map.ranges) {
    offset += size;
    const at = Math.round(chart.valToPos(offset, "y", true)) + 0.5;
    line(context, bbox.left, at, bbox.left + bbox.width, at);
  }
}

function addressAt(map, offset) {
  let begin = 0;
  for (const [base, size] of map.ranges) {
    if (offset < begin + size) return `0x${(BigInt(base) + BigInt(Math.floor(offset - begin))).toString(16)}`;
    begin += size;
  }
  return "";
}

function rgb(color) {
  return [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16));
}
