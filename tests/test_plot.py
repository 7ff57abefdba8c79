"""GIVEN a trace, WHEN it is drawn, THEN the picture holds its data; nothing covers anything."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from xml.dom import minidom

import numpy as np
import pytest
import recorded
import scenarios
from figures import texts
from matplotlib.backends.backend_agg import FigureCanvasAgg
from synthetic import MIB, TraceBuilder

from gpumemtrace.analysis.timeline import build_timeline
from gpumemtrace.cli.main import main
from gpumemtrace.plot.style import memory_unit, phase_colors
from gpumemtrace.plot.timeline import draw_timeline
from gpumemtrace.schema import Kind

GIB = 1024 * MIB


def drawn(trace, **options):
    size = options.pop("size_inches", None)
    figure = draw_timeline(build_timeline(trace, **options), size_inches=size)
    FigureCanvasAgg(figure).draw()
    return figure


def line_of(ax, label):
    (line,) = [line for line in ax.lines if line.get_label() == label]
    return np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)


def step_labels(ax):
    (top,) = ax.child_axes
    return [label for label in top.get_xticklabels() if label.get_text()]


@pytest.fixture(scope="module")
def gpt2():
    return recorded.load("gpt2")


def many_steps(steps: int, *, spike_at: int) -> TraceBuilder:
    """Two events a step; in one step 15 GiB for 2 ms."""
    builder = TraceBuilder()
    builder.stats(0, 0, 0, 0)
    for step in range(steps):
        builder.phase("forward").alloc(1 << 30, 100 * MIB, after_ns=5_000_000)
        if step == spike_at:
            builder.alloc(1 << 40, 15 * GIB, after_ns=1_000_000).free(1 << 40, after_ns=2_000_000)
        builder.phase("backward", after_ns=5_000_000).free(1 << 30).step(step + 1)
    return builder


def test_lines_are_those_of_the_trace(gpt2):
    trace, truth = gpt2
    figure = drawn(trace, columns=500)
    memory = figure.axes[0]
    assert memory.get_ylabel() == "memory (GiB)"
    for label in ("allocated", "reserved"):
        x, y = line_of(memory, label)
        assert y.max() * GIB == pytest.approx(truth["peak"][f"{label}_bytes.all.peak"], rel=1e-12)
        assert (x[0], x[-1]) == (0, trace.duration_ns / 1e9)
        assert (np.diff(x) >= 0).all()
        assert len(x) == 500 * 4 + 2
        assert y[-1] * GIB == pytest.approx(
            truth["stats_per_step"][-1][1 + 2 * (label != "allocated")]
        )
    assert figure.axes[1].get_xlabel() == "time (s)"


def test_the_peak_is_marked_with_value_phase_and_step(gpt2):
    figure = drawn(gpt2[0])
    assert "peak 3.131 GiB allocated, backward, step 1, at 19.8 s" in texts(figure)
    marker = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert [m.get_ydata()[0] * GIB for m in marker] == [gpt2[1]["peak"]["allocated_bytes.all.peak"]]


def test_no_peak_is_lost_in_3000_steps():
    """C94: a spike of 2 ms in half a minute; its height is drawn to the byte."""
    trace = many_steps(3000, spike_at=1234).trace()
    figure = drawn(trace, columns=800)
    _, y = line_of(figure.axes[0], "allocated")
    assert y.max() * GIB == 15 * GIB + 100 * MIB
    assert "step 1,234" in texts(figure)
    labels = [label.get_text() for label in step_labels(figure.axes[0])]
    assert labels[:3] == ["0", "200", "400"]
    assert len(labels) <= 22
    assert "share of time" in figure.axes[1].get_ylabel()


def test_three_steps_have_named_bands(gpt2):
    figure = drawn(gpt2[0].slice(steps=(10, 13)))
    memory, phases = figure.axes
    assert [label.get_text() for label in step_labels(memory)] == ["10", "11", "12", "13"]
    names = [text.get_text() for text in phases.texts]
    assert names.count("forward") == 3
    assert names.count("backward") == 3
    assert re.search(r"showing 6,3\d\d of 127,\d\d\d records", texts(figure))
    # The lines begin with what was in use, not with nothing.
    _, y = line_of(memory, "allocated")
    assert y[0] * GIB == pytest.approx(1581117952)


@pytest.mark.parametrize("size", [(12, 6), (6, 4), (20, 5)])
@pytest.mark.parametrize("which", ["gpt2", "out_of_memory", "lost_events", "two_devices"])
def test_nothing_covers_anything(gpt2, which, size):
    trace = gpt2[0] if which == "gpt2" else getattr(scenarios, which)().trace()
    figure = drawn(trace, size_inches=size)
    panels = [ax.get_window_extent() for ax in figure.axes]
    legends = [legend.get_window_extent() for legend in figure.legends]
    titles = [ax._left_title.get_window_extent() for ax in figure.axes if ax.get_title(loc="left")]
    assert titles
    heading = [text.get_window_extent() for text in figure.texts]
    assert heading
    for a, b in itertools.combinations([*legends, *panels, *titles, *heading], 2):
        assert not a.overlaps(b)
    whole = figure.bbox
    for box in (*legends, *panels, *heading):
        assert box.x0 >= -1 and box.x1 <= whole.x1 + 1, "cut off"
    for ax in figure.axes[: len(figure.axes) - 1]:
        for a, b in itertools.pairwise(step_labels(ax) if ax.child_axes else []):
            assert not a.get_window_extent().overlaps(b.get_window_extent())
    # The peak's text stands above every line of its panel.
    for ax in figure.axes[:-1]:
        for text in ax.texts:
            # Its extent has the arrow in it, whose tip is the peak: equal but for rounding.
            bottom = ax.transData.inverted().transform(text.get_window_extent().p0)[1]
            highest = max(np.nanmax(line_of(ax, "allocated")[1]), 0)
            assert bottom >= highest or bottom == pytest.approx(highest, rel=1e-12)


def test_a_card_of_ones_own_is_simulated_once():
    builder = scenarios.out_of_memory()
    builder.run_record["simulated"] = {"gpu": "Simulated GPU (24 GiB, 8.9)", "approximations": []}
    told = texts(drawn(builder.trace()))
    assert "simulated GPU (24 GiB, 8.9)" in told and "simulated Simulated" not in told


def test_out_of_memory_and_simulation_are_told():
    figure = drawn(scenarios.out_of_memory().trace())
    told = texts(figure)
    assert "out of memory: 4.000 GiB in forward, step 7" in told
    assert "simulated Tesla T4" in told
    assert "capacity" in told
    assert set(line_of(figure.axes[0], "capacity")[1]) == {15}
    markers = [line for line in figure.axes[0].lines if line.get_marker() == "v"]
    failed = scenarios.out_of_memory().trace().records(Kind.ALLOC_FAILED)["time_ns"][0]
    assert [m.get_xdata()[0] for m in markers] == [failed / 1e9]


@pytest.mark.parametrize(("marks", "height"), [(3, 1 / 1.16), (60, 0.03)])
def test_many_marks_leave_the_lines_to_be_seen(marks, height):
    builder = TraceBuilder(strings={1: "an epoch"})
    for _ in range(marks):
        builder.add(Kind.MARK, size_bytes=1, device=-1).alloc(1 << 30, MIB).free(1 << 30)
    figure = drawn(builder.trace())
    assert f"{marks} marks" in texts(figure)
    (lines,) = figure.axes[0].collections[-1:]
    tops = [segment[:, 1].max() for segment in lines.get_segments()]
    assert tops == pytest.approx([height] * marks)


def test_lost_events_are_marked_until_the_next_counters():
    trace = scenarios.lost_events().trace()
    timeline = build_timeline(trace)
    gap = trace.records(Kind.GAP)
    lost_from = int(gap["time_ns"][0]) - 9_000_000
    stats = trace.records(Kind.STATS)["time_ns"]
    healed = int(stats[stats > gap["time_ns"][0]][0])
    assert timeline.devices[0].uncertain_ns.tolist() == [[lost_from, healed]]
    told = texts(drawn(trace))
    assert "10,000 events lost: uncertain" in told
    assert "epoch 2" in told


def test_each_device_has_a_panel_and_a_silent_one_says_so():
    """C92."""
    figure = drawn(scenarios.two_devices().trace(), devices=[0, 1, 2])
    titles = [ax.get_title(loc="left") for ax in figure.axes[:3]]
    assert titles == [f"cuda:{i}  NVIDIA H100 80GB HBM3  80.000 GiB" for i in range(3)]
    assert not figure.axes[2].lines
    assert "no events on cuda:2" in texts(figure)
    assert len(drawn(scenarios.two_devices().trace()).axes) == 3  # two with events, and the phases


def test_samples_of_the_device_begin_where_they_do():
    builder = TraceBuilder().alloc(512, MIB, after_ns=10**9)
    builder.add(Kind.DEVICE_USED, size_bytes=7 * MIB, after_ns=10**9).free(512, after_ns=10**9)
    x, y = line_of(drawn(builder.trace()).axes[0], "device used")
    assert np.nanmax(y) == 7
    assert np.isnan(y[x < 1.99]).all()
    assert not np.isnan(y[x > 2.01]).any()


def test_what_is_not_known_is_not_drawn():
    figure = drawn(TraceBuilder().alloc(512, MIB).free(512).trace())
    assert "reserved" not in texts(figure)
    assert len(figure.axes) == 1  # no phases either


def test_traces_of_next_to_nothing():
    for builder in (TraceBuilder(), TraceBuilder().step(1), TraceBuilder().alloc(512, 0)):
        drawn(builder.trace())
    assert "no events: this process allocated no CUDA memory" in texts(
        drawn(TraceBuilder().phase("init").trace())
    )


def test_shares_of_time_add_up():
    bands = build_timeline(many_steps(300, spike_at=5).trace(), columns=50).phases
    np.testing.assert_allclose(bands.share[1:-1].sum(axis=1), 1, atol=1e-3)
    spent = bands.share.mean(axis=0)
    assert bands.names == ("forward", "backward")
    assert spent[0] == pytest.approx(0.998, abs=0.003)


def test_colors_of_phases_are_told_apart_and_stay():
    names = ["mine", "forward", "other", "backward"]
    colors = phase_colors(names)
    assert len(set(colors.values())) == len(names)
    assert colors["forward"] == phase_colors(["forward"])["forward"]


def test_units():
    assert [memory_unit(n)[1] for n in (100, 2000, 5 * MIB, 3 * GIB)] == ["B", "KiB", "MiB", "GiB"]


class TestCommand:
    @pytest.fixture
    def path(self, tmp_path) -> Path:
        scenarios.two_devices().trace().save(tmp_path / "a.gmt")
        return tmp_path / "a.gmt"

    @pytest.mark.parametrize(
        ("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
    )
    def test_the_format_follows_the_name(self, path, suffix, start, capsys):
        output = path.with_name(f"out.{suffix}")
        assert main(["plot", str(path), "-o", str(output)]) == 0
        assert output.read_bytes().startswith(start)
        assert capsys.readouterr().out.startswith(f"Wrote {output}\nNext: gpumemtrace ")

    def test_nothing_is_overwritten_without_force(self, path, capsys):
        path.with_suffix(".png").write_text("mine")
        assert main(["plot", str(path)]) == 1
        assert "overwrite with -f" in capsys.readouterr().err
        assert path.with_suffix(".png").read_text() == "mine"
        assert main(["plot", "-f", "-q", str(path)]) == 0
        assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
        assert capsys.readouterr().out == ""

    def test_a_device_without_events(self, path, capsys):
        assert main(["plot", str(path), "--device", "2"]) == 0
        error = capsys.readouterr().err
        assert error == "cuda:2 has no events in this trace; cuda:0, cuda:1 have\n"

    def test_steps_that_are_not_there(self, path, capsys):
        assert main(["plot", str(path), "--steps", "9:12"]) == 1
        assert capsys.readouterr().err == (
            f"gpumemtrace: {path}: no step in 9:12: the trace has steps 0 to 4\n"
        )

    @pytest.mark.parametrize(
        "arguments", [["--steps", "x"], ["--size", "12"], ["--size", "1x1"], ["--kind", "pie"]]
    )
    def test_wrong_arguments(self, path, arguments, capsys):
        with pytest.raises(SystemExit) as stop:
            main(["plot", str(path), *arguments])
        assert stop.value.code == 2
        assert arguments[0] in capsys.readouterr().err

    def test_another_suffix_is_refused(self, path, capsys):
        assert main(["plot", str(path), "-o", "a.jpeg"]) == 1
        assert "must end with .png, .svg, .pdf" in capsys.readouterr().err


def test_names_are_drawn_as_they_are(tmp_path):
    names = ["$a_{$", "_hidden", "nul\0 and\nline", "\N{ROCKET}", "x" * 5000]
    builder = TraceBuilder(strings={1: "only one $x^{ mark " + "m" * 100_000})
    builder.stats(0, 0, 0, 0).add(Kind.MARK, size_bytes=1)
    for number, name in enumerate(names):
        builder.phase(name).alloc(512 + 512 * number, 100, after_ns=10_000_000)
    shown = texts(drawn(builder.trace()))
    assert r"\$a_{\$" in shown
    assert "\u200b_hidden" in shown
    assert "nul\N{REPLACEMENT CHARACTER} and\nline" in shown
    assert "x" * 150 in shown
    assert "x" * 201 not in shown
    builder.trace().save(tmp_path / "a.gmt")
    assert main(["plot", str(tmp_path / "a.gmt"), "-o", str(tmp_path / "a.svg")]) == 0
    minidom.parse(str(tmp_path / "a.svg"))


def test_thousands_of_phases_are_joined():
    builder = TraceBuilder().stats(0, 0, 0, 0)
    for number in range(2000):
        builder.phase(f"p{number}").alloc(512 * (number + 1), 100, after_ns=1000)
    builder.phase("long").alloc(512 * 3000, 100, after_ns=1000).alloc(
        512 * 3001, 100, after_ns=9_000_000
    )
    bands = build_timeline(builder.trace(), columns=300_000).phases
    assert len(bands.names) == 61
    assert "long" in bands.names
    assert bands.names[-1] == "1,941 other phases"
    assert bands.share.shape == (4096, 61)
    spent = dict.fromkeys(bands.names, 0)
    for phase, start, end in zip(bands.phase, bands.start_ns, bands.end_ns, strict=True):
        spent[bands.names[phase]] += end - start
    assert max(spent, key=spent.get) == "long"
