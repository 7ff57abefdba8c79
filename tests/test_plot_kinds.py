"""GIVEN a trace, WHEN any figure is drawn, THEN it shows its result's data; nothing overlaps."""

from __future__ import annotations

import itertools

import fragmented
import matplotlib as mpl
import numpy as np
import pytest
import recorded
import scenarios
from figures import texts
from matplotlib import pyplot as plt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from owned_traces import transformer
from synthetic import MIB, TraceBuilder

from gpumemtrace.analysis.categories import CATEGORY_NAMES
from gpumemtrace.plot import KINDS
from gpumemtrace.plot import categories as categories_kind
from gpumemtrace.plot import fragmentation as fragmentation_kind
from gpumemtrace.plot import growth as growth_kind
from gpumemtrace.plot import lifetimes as lifetimes_kind
from gpumemtrace.plot import modules as modules_kind
from gpumemtrace.plot import peak as peak_kind
from gpumemtrace.plot import phases as phases_kind
from gpumemtrace.plot import sizes as sizes_kind
from gpumemtrace.plot.compare import build as build_comparison
from gpumemtrace.plot.compare import draw as draw_comparison
from gpumemtrace.plot.contrast import contrast
from gpumemtrace.plot.kinds import load_kind
from gpumemtrace.plot.style import CATEGORY_COLORS, FREE_COLORS, LINE_STYLES, phase_colors
from gpumemtrace.plot.theme import THEMES, ground, ink, line_color, quiet, theme
from gpumemtrace.trace import Trace

GIB = 1024 * MIB
SINGLE = [kind for kind in KINDS if kind != "compare"]


@pytest.fixture(scope="module")
def gpt2() -> Trace:
    return recorded.load("gpt2")[0]


@pytest.fixture(scope="module")
def traces(gpt2) -> dict[str, Trace]:
    return {
        "gpt2": gpt2,
        "three_steps": gpt2.slice(steps=(10, 13)),
        "out_of_memory": scenarios.out_of_memory().trace(),
        "lost_events": scenarios.lost_events().trace(),
        "two_devices": scenarios.two_devices().trace(),
        "interleaved": fragmented.interleaved()[0].trace(),
        "three_modules": transformer(1).trace(),
        "many_modules": transformer(43).trace(),
        "nothing": TraceBuilder().phase("init").trace(),
        "one_block": TraceBuilder().alloc(512, 0).trace(),
    }


def drawn(kind: str, trace: Trace, *, size_inches=None, **options):
    module = load_kind(kind)
    if kind == "compare":
        options.setdefault("other", trace)
    with theme():
        figure = module.draw(module.build(trace, **options), size_inches=size_inches)
        FigureCanvasAgg(figure).draw()
    return figure


def areas(ax) -> dict[str, np.ndarray]:
    """Label -> the height of each stacked part at each of its x, of those drawn as steps."""
    found = {}
    for area in ax.collections:
        label = str(area.get_label())
        if not label.startswith("_"):
            (path,) = area.get_paths()
            found[label] = path.vertices
    return found


def top_of(ax) -> float:
    return max(vertices[:, 1].max() for vertices in areas(ax).values())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "which",
    [
        "gpt2",
        "three_steps",
        "out_of_memory",
        "lost_events",
        "two_devices",
        "interleaved",
        "three_modules",
        "many_modules",
        "nothing",
        "one_block",
    ],
)
@pytest.mark.parametrize("size", [None, (7, 5)])
def test_nothing_covers_anything(traces, kind, which, size):
    if size and which not in ("gpt2", "out_of_memory"):
        return
    figure = drawn(kind, traces[which], size_inches=size)
    panels = [ax.get_window_extent() for ax in figure.axes]
    frame = [text.get_window_extent() for text in figure.texts]
    frame += [legend.get_window_extent() for legend in figure.legends]
    assert frame
    for a, b in itertools.combinations([*panels, *frame], 2):
        assert not a.overlaps(b)
    for box in (*panels, *frame):
        assert box.x0 >= -1, "cut off"
        assert box.x1 <= figure.bbox.x1 + 1, "cut off"
        assert box.y0 >= -1, "cut off"
        assert box.y1 <= figure.bbox.y1 + 1, "cut off"
    # Titles, labels and ticks of panels keep out of the heading and the keys.
    for ax in figure.axes:
        box = ax.get_tightbbox()
        for other in frame:
            assert box is None or not box.shrunk(0.999, 0.999).overlaps(other)


@pytest.mark.parametrize("kind", SINGLE)
def test_no_events_are_told(traces, kind):
    assert "no events: this process allocated no CUDA memory" in texts(
        drawn(kind, traces["nothing"])
    )
    assert "no events" in texts(drawn(kind, traces["two_devices"], devices=[2]))


def test_phases_are_those_of_the_result(gpt2):
    shown = phases_kind.build(gpt2)
    figure = drawn("phases", gpt2)
    (result,) = shown.found
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    for i, name in enumerate(result.names):
        peaks = result.peak_allocated_bytes[:, i]
        y = np.asarray(lines[name].get_ydata()) * GIB
        assert lines[name].get_xdata().tolist() == result.number.tolist()
        np.testing.assert_allclose(y[peaks >= 0], peaks[peaks >= 0])
        assert np.isnan(y[peaks < 0]).all()
    assert "backward sets the peak: 3.131 GiB in step 1" in texts(figure)
    assert len({line.get_color() for line in lines.values()}) == len(lines)


def test_three_thousand_steps_are_bands_that_keep_every_peak():
    builder = TraceBuilder()
    for step in range(3000):
        builder.phase("forward").alloc(1 << 30, (900 if step == 1234 else step % 7 + 1) * MIB)
        builder.phase("backward").free(1 << 30).step(step + 1)
    trace = builder.trace()
    figure = drawn("phases", trace)
    (ax,) = figure.axes
    assert len(ax.lines[0].get_xdata()) == 120
    assert max(area.get_paths()[0].vertices[:, 1].max() for area in ax.collections) == 900
    assert "forward sets the peak: 900.0 MiB in step 1,234" in texts(figure)
    assert "line: median of neighbouring steps" in texts(figure)
    assert top_of(drawn("peak", trace).axes[2]) == 900
    assert top_of(drawn("categories", trace).axes[0]) == 900
    assert len(areas(drawn("growth", trace).axes[0])) <= 9


def test_more_phases_than_can_be_told_apart_are_counted():
    builder = TraceBuilder()
    for i in range(14):
        builder.phase(f"phase {i}").alloc(512 * (i + 1), (i + 1) * MIB)
    figure = drawn("phases", builder.step(1).trace())
    assert "showing 10 of 14 phases" in texts(figure)
    assert {line.get_label() for line in figure.axes[0].lines} == {
        f"phase {i}" for i in range(4, 14)
    }


def test_categories_stack_up_to_the_line(gpt2):
    trace = gpt2.slice(steps=(10, 13))
    shown = categories_kind.build(trace)
    figure = drawn("categories", trace)
    assert top_of(figure.axes[0]) * GIB == pytest.approx(3362081792)
    one = shown.categories[0]
    _, row = one.envelope(shown.timeline.start_ns, shown.timeline.end_ns, columns=shown.columns)
    below = np.zeros(len(row))
    for name in CATEGORY_COLORS:
        sizes = one.category_bytes[row, CATEGORY_NAMES.index(name)]
        label = name.replace("_", " ")
        if not sizes.any():
            assert label not in areas(figure.axes[0])
            continue
        below = below + sizes
        assert areas(figure.axes[0])[label][:, 1].max() * GIB == pytest.approx(below.max())
    assert "41% activation, 30% optimizer state, 15% parameter" in texts(figure)
    assert figure.axes[1].get_xlabel() == "time (s)"


def test_the_peak_is_in_bars_that_add_up(gpt2):
    (peak,) = peak_kind.build(gpt2).found
    figure = drawn("peak", gpt2)
    bars, kinds, steps = figure.axes
    widths = [bar.get_width() for bar in bars.patches]
    assert sum(widths) == peak.size_bytes == 3362081792
    assert widths == [group.size_bytes for group in peak.group_by("category")]
    assert [t.get_text() for t in bars.get_yticklabels()][:2] == ["activation", "optimizer state"]
    assert [b.get_width() for b in kinds.patches] == [k.size_bytes for k in peak.blocks.kinds()[:9]]
    assert "60 x 12.0 MiB" in [t.get_text() for t in kinds.get_yticklabels()]
    assert top_of(steps) * GIB == pytest.approx(3362081792)
    assert "showing 9 of 31 kinds of blocks" in texts(figure)
    assert "1 block\n" in texts(figure)


def test_growth_shows_the_verdict_and_the_rate():
    builder = TraceBuilder()
    for step in range(40):
        builder.phase("forward").alloc((step + 1) << 24, 3 * MIB)
        builder.phase("optimizer").alloc(512, 700 * MIB).free(512).step(step + 1)
    trace = builder.trace()
    (result,) = growth_kind.build(trace).found
    assert result.verdict == "growing"
    figure = drawn("growth", trace)
    assert texts(figure).startswith("Growing: 3.00 MiB per step since step 0")
    assert "+3.0 MiB per step" in texts(figure)
    left, right = figure.axes
    total = result.retained.size_bytes.sum(axis=1)
    assert top_of(left) * MIB == pytest.approx(total.max())
    (rate,) = left.lines
    x, y = np.asarray(rate.get_xdata(), float), np.asarray(rate.get_ydata(), float)
    assert (y[1] - y[0]) / (x[1] - x[0]) == pytest.approx(3)
    heights = [bar.get_height() * MIB for bar in right.patches]
    np.testing.assert_allclose(heights, [one.bytes_per_step for one in result.survivors])


def test_the_map_of_addresses_has_the_colors_of_its_cells():
    trace = fragmented.interleaved()[0].trace()
    figure = drawn("fragmentation", trace)
    (part,) = fragmentation_kind.build(trace).found
    picture = np.asarray(figure.axes[0].images[0].get_array())
    assert picture.shape[0] == part.map.use_percent.shape[1]
    last_use, last_idle = part.map.use_percent[-1], part.map.idle_percent[-1]
    for percent, other, color in (
        (last_use, last_idle, "#0072B2"),
        (last_idle, last_use, "#BBBBBB"),
    ):
        for row in np.flatnonzero((percent == 100) & (other == 0)).tolist():
            np.testing.assert_allclose(picture[row, -1], mpl.colors.to_rgb(color), atol=1e-9)
    stuck = (last_use == 0) & (last_idle == 0)
    assert stuck.any()
    expected = mpl.colors.to_rgb(FREE_COLORS["interleaved"])
    np.testing.assert_allclose(picture[np.argmax(stuck), -1], expected, atol=1e-9)
    assert top_of(figure.axes[1]) * MIB == pytest.approx(part.found.series.cached.max())
    assert "320.0 MiB of" in texts(figure)


def test_a_trace_without_segments_says_so(gpt2):
    assert "the trace does not tell of the allocator's segments" in texts(
        drawn("fragmentation", gpt2)
    )


def test_sizes_and_lifetimes_are_the_counts(gpt2):
    (result,) = sizes_kind.build(gpt2).found
    left, right = drawn("sizes", gpt2).axes
    assert top_of(left) == result.allocs.sum(axis=(1, 2)).max()
    assert top_of(right) * GIB == pytest.approx(result.size_bytes.sum(axis=(1, 2)).max())
    assert [t.get_text() for t in left.get_xticklabels()][:2] == ["512 B", "1 KiB"]
    figure = drawn("lifetimes", gpt2)
    assert top_of(figure.axes[0]) * GIB == pytest.approx(result.size_bytes.sum(axis=(0, 2)).max())
    cells = np.ma.filled(figure.axes[1].collections[0].get_array(), 0)
    assert np.nansum(cells) == result.total_allocs == 63687
    assert "449 of 63,687 allocations, 1.454 GiB, are alive at the end" in texts(figure)


def test_two_runs_side_by_side(gpt2):
    first, others = gpt2.slice(steps=(0, 1)), gpt2.slice(steps=(1, 4))
    shown = build_comparison(first, other=others)
    with theme():
        figure = draw_comparison(shown)
        FigureCanvasAgg(figure).draw()
    steps, peaks, made_of, changes = figure.axes
    (device,) = shown.found.devices
    assert [len(line.get_xdata()) for line in steps.lines] == [1, 3]
    marked = [line for line in peaks.lines if line.get_marker() == "o"]
    both = device.peaks["allocated"]
    assert [line.get_xdata()[0] * GIB for line in marked[:2]] == pytest.approx([both.a, both.b])
    assert "init" in [t.get_text() for t in peaks.get_yticklabels()]
    assert len(made_of.get_yticklabels()) == len(device.category_bytes)
    widths = [bar.get_width() * MIB for bar in changes.patches]
    assert widths == pytest.approx([group.change_bytes for group in device.groups[:10]])
    assert "B uses more memory: 3.131 GiB allocated at the peak instead of" in texts(figure)
    assert "showing 10 of" in texts(figure)
    assert "only in A" in texts(figure)
    same = drawn("compare", first)
    assert "a step makes the same allocations in A and in B" in texts(same)


def boxes(ax) -> dict[int, list[tuple[float, float]]]:
    """Row -> left edge and width of each box."""
    found: dict[int, list[tuple[float, float]]] = {}
    for box in ax.patches:
        found.setdefault(round(box.get_y()), []).append((box.get_x(), box.get_width()))
    return {row: sorted(found[row]) for row in sorted(found)}


@pytest.mark.parametrize("which", ["three_modules", "many_modules"])
def test_boxes_of_modules_lie_side_by_side_and_add_up(traces, which):
    trace = traces[which]
    figure = drawn("modules", trace)
    assert len(figure.axes) == 4  # module and site; peak and all that was allocated
    for ax in figure.axes:
        rows = boxes(ax)
        assert sum(width for _, width in rows[0]) == pytest.approx(1)
        for row in rows.values():
            assert len(row) < 600
            for (left, width), (following, _) in itertools.pairwise(row):
                assert left + width <= following + 1e-9
        leaves = [box for box in ax.patches if is_leaf(box, rows)]
        assert sum(box.get_width() for box in leaves) == pytest.approx(1)
    peak = trace.peak().size_bytes
    assert f"The peak, {modules_kind.format_bytes(peak)} in backward, step 0: " in texts(figure)
    assert "Net" in texts(figure)
    assert "head" in texts(figure)


def is_leaf(box, rows) -> bool:
    middle = box.get_x() + 0.3819 * box.get_width()  # where no two parts meet
    below = rows.get(round(box.get_y()) + 1, [])
    return not any(left < middle < left + width for left, width in below)


def test_without_modules_the_figure_says_how_to_record_them(gpt2):
    said = texts(drawn("modules", gpt2))
    assert "record with gpumemtrace run --modules, or --stacks python" in said


@pytest.mark.parametrize("kind", KINDS)
def test_a_simulated_run_is_marked(traces, kind):
    figure = drawn(kind, traces["out_of_memory"])
    assert "simulated Tesla T4" in texts(figure)


def test_functions_draw_on_axes_of_the_users_or_their_own(gpt2):
    (growth,) = growth_kind.build(gpt2).found
    (phases,) = phases_kind.build(gpt2).found
    (peak,) = peak_kind.build(gpt2).found
    (counts,) = lifetimes_kind.build(gpt2).found
    categories = categories_kind.build(gpt2).categories[0]
    tree = modules_kind.build(transformer(1).trace()).found[0].trees[0]
    functions = [
        (phases_kind.plot_step_phases, phases),
        (categories_kind.plot_categories, categories),
        (peak_kind.plot_peak, peak),
        (peak_kind.plot_peak_kinds, peak),
        (peak_kind.plot_step_peaks, peak),
        (modules_kind.plot_modules, tree),
        (growth_kind.plot_retained, growth),
        (growth_kind.plot_survivors, growth),
        (sizes_kind.plot_sizes, counts),
        (lifetimes_kind.plot_lifetimes, counts),
        (lifetimes_kind.plot_sizes_and_lifetimes, counts),
    ]
    before = dict(mpl.rcParams)
    with mpl.rc_context({"backend": "agg"}):
        for function, result in functions:
            own = mpl.figure.Figure().subplots()
            assert function(result, own) is own
            assert not plt.get_fignums()
            assert function(result).figure.number in plt.get_fignums()
            plt.close("all")
    assert {k: v for k, v in mpl.rcParams.items() if before[k] != v}.keys() <= {"backend"}


@pytest.mark.parametrize("name", THEMES)
def test_what_is_thin_stands_out_from_the_ground(name):
    with theme(name):
        colors = {*CATEGORY_COLORS.values(), *phase_colors(["forward", "mine", "init"]).values()}
        for color in (*colors, *(style.color for style in LINE_STYLES.values())):
            assert contrast(line_color(color), ground()) >= 3
        assert contrast(ink(), ground()) >= 7
        assert contrast(quiet(), ground()) >= 4.5


def test_names_that_matplotlib_would_take_for_something_else():
    builder = TraceBuilder()
    for name in ("_hidden", "a$b$c", "x_1^2"):
        builder.phase(name).alloc(512 * (len(builder.rows) + 1), MIB)
    trace = builder.step(1).trace()
    for kind in KINDS:
        drawn(kind, trace)
    (key,) = drawn("phases", trace).legends
    assert [t.get_text().lstrip("\u200b") for t in key.get_texts()] == [
        "_hidden",
        r"a\$b\$c",
        "x_1^2",
    ]
