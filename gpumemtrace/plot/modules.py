"""Modules and call sites: whose the peak is, and all that was allocated, as trees cut in rows.

Shows `gpumemtrace.analysis.owner_tree.OwnerTree` and computes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from gpumemtrace.analysis.owner_tree import (
    DeviceOwners,
    OwnerNode,
    OwnerTree,
    find_owner_trees,
)
from gpumemtrace.plot.by_device import NO_EVENTS, ByDevice, figure_for, of_devices
from gpumemtrace.plot.contrast import is_light, mix
from gpumemtrace.plot.frame import add_frame, axes_or_new, context_of, place_of, plain, say
from gpumemtrace.plot.stacks import category_color, words
from gpumemtrace.plot.style import CATEGORY_COLORS
from gpumemtrace.plot.theme import ground, ink
from gpumemtrace.trace_data import TraceData
from gpumemtrace.units import format_bytes

__all__ = ["build", "draw", "plot_modules"]

NOT_RECORDED = (
    "this trace tells neither modules nor call sites:\n"
    "record with gpumemtrace run --modules, or --stacks python"
)
# A box narrower than this part of the width is told together with others.
_LEAST_SHARE = 1 / 500
# What has so much of the peak is not worth naming alone.
_TRUNK_SHARE = 0.97
_MOST_NAMED, _LEAST_NAMED_SHARE = 3, 0.01
_LONGEST_NAME = 40
_POINTS = 7.5
_LETTER_INCHES = 0.6 * _POINTS / 72
_FEWEST_LETTERS = 7
_TITLES = {
    ("module", "peak"): "in use at the peak, by module",
    ("module", "allocated"): "all that was allocated, by module",
    ("site", "peak"): "in use at the peak, by call site",
    ("site", "allocated"): "all that was allocated, by call site",
}


def build(
    trace: TraceData, *, devices: Sequence[int] | None = None, columns: int = 2000
) -> ByDevice[DeviceOwners]:
    """Build the trees of each device."""
    return of_devices(trace, find_owner_trees(trace, devices=devices), devices)


def draw(
    shown: ByDevice[DeviceOwners], *, size_inches: tuple[float, float] | None = None
) -> Figure:
    """Return the whole figure: for each device and way to group it the peak, then all bytes."""
    panels = [
        (number, owners, tree)
        for number, owners in shown.results.items()
        for tree in ((None,) if owners is None or not owners.trees else owners.trees)
    ]
    rows = [1.5 if tree is None else _row_count(tree.root) + 1.5 for _, _, tree in panels]
    inches = 0.19 * sum(rows) / max(len(shown.results), 1)
    figure, _ = figure_for(shown, size_inches, panel_inches=max(inches, 2.0))
    grid = figure.add_gridspec(max(len(panels), 1), 1, height_ratios=rows or [1])
    if not panels:
        say(figure.add_subplot(grid[:, :]), NO_EVENTS)
    used: set[str] = set()
    for i, (number, owners, tree) in enumerate(panels):
        ax = figure.add_subplot(grid[i, 0])
        title = shown.title_of(number)
        if tree is None:
            nothing = f"no events on cuda:{number}: nothing was allocated there"
            say(ax, nothing if owners is None else NOT_RECORDED)
        else:
            title = f"{_TITLES[tree.by, tree.of]}: {format_bytes(tree.root.size_bytes)}"
            title = f"{shown.title_of(number)}:  {title}" if len(shown.results) > 1 else title
            plot_modules(tree, ax)
            used |= _categories(tree.root)
        ax.set_title(title, loc="left")
    add_frame(
        figure,
        finding=_finding(shown),
        context=context_of(shown.facts),
        below=_key(used),
    )
    return figure


def plot_modules(tree: OwnerTree, ax: Axes | None = None) -> Axes:
    """Draw a tree as boxes: below each the parts of it, as wide as their bytes.

    Grey boxes are modules or lines; coloured ones what they made themselves, by what it is for.
    Small neighbours are drawn as one box, so that the widths of a row add up to the one above.
    """
    ax = axes_or_new(ax)
    total = max(_width(tree.root), 1)
    count = _row_count(tree.root)
    inches = ax.get_position().width * ax.figure.get_figwidth()  # type: ignore[union-attr]
    ax.set_xlim(0, 1)
    ax.set_ylim(max(count, 3), 0)
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set_visible(False)

    def place(nodes: Sequence[OwnerNode], left: float, row: int) -> None:
        for node in nodes:
            width = _width(node) / total
            if width <= 0:
                continue
            name, within = _collapsed(node, " › " if tree.by == "site" else ".")
            _box(ax, node, name, left, width, row, inches)
            place(within.children, left, row + 1)
            left += width

    place(tree.root.merged(_LEAST_SHARE * total).children, 0.0, 0)
    return ax


def _box(
    ax: Axes, node: OwnerNode, name: str, left: float, width: float, row: int, inches: float
) -> None:
    if node.category:
        color, name = category_color(node.category), words(node.category)
    else:
        color = mix(ground(), ink(), 0.12 if node.children else 0.24)
    line = min(0.6, 72 * inches * width / 6)
    ax.add_patch(
        Rectangle(
            (left, row), width, 1, facecolor=color, edgecolor=ground(), linewidth=line, zorder=1
        )
    )
    letters = int(0.92 * inches * width / _LETTER_INCHES)
    label = f"{name}  {format_bytes(node.size_bytes)}"
    if len(label) > letters:
        label = name
    if len(label) > letters:
        if node.category or letters < _FEWEST_LETTERS:  # the key tells colours
            return
        # The end of a path says more than its beginning.
        label = f"…{name[1 - letters :]}"
    ax.text(
        left + width / 2,
        row + 0.5,
        plain(label),
        ha="center",
        va="center",
        fontsize=_POINTS,
        color="#000000" if is_light(color) else "#ffffff",
        clip_on=True,
    )


def _collapsed(node: OwnerNode, separator: str) -> tuple[str, OwnerNode]:
    """Return a node with the only child of only children, so that a row tells something new."""
    name = node.name
    while len(node.children) == 1 and node.children[0].children:
        node = node.children[0]
        name = f"{name}{separator}{node.name}"
    return name, node


def _width(node: OwnerNode) -> int:
    """Bytes that have a place: what the trace has seen too much of has none."""
    if not node.children:
        return max(node.size_bytes, 0)
    return sum(map(_width, node.children))


def _row_count(root: OwnerNode) -> int:
    def rows(node: OwnerNode) -> int:
        _, within = _collapsed(node, "")
        return 1 + max(map(rows, within.children), default=0)

    merged = root.merged(_LEAST_SHARE * max(_width(root), 1))
    return max(map(rows, merged.children), default=1)


def _categories(node: OwnerNode) -> set[str]:
    found = {node.category} if node.category and node.size_bytes > 0 else set()
    return found.union(*map(_categories, node.children))


def _key(used: set[str]) -> list[Artist]:
    return [
        Patch(facecolor=category_color(name), edgecolor=ground(), label=plain(words(name)))
        for name in CATEGORY_COLORS
        if name in used
    ]


def _finding(shown: ByDevice[DeviceOwners]) -> str:
    if not shown.found:
        return "Nothing was allocated"
    top = max(shown.found, key=lambda owners: owners.peak.size_bytes).peak
    on = f" of cuda:{top.device}" if len(shown.found) > 1 else ""
    peak = f"The peak{on}, {format_bytes(top.size_bytes)} in {place_of(top.phase, top.step)}"
    if not top.owners.known:
        return f"{peak}: whose it is, the trace does not tell"
    node = max(shown.found, key=lambda owners: owners.peak.size_bytes).trees[0].root
    # Where the tree begins to branch.
    while node.children and node.children[0].children:
        if node.children[0].size_bytes < _TRUNK_SHARE * top.size_bytes:
            break
        node = node.children[0]
    parts = (
        f"{child.size_bytes / max(top.size_bytes, 1):.0%} {_short(child)}"
        for child in node.children[:_MOST_NAMED]
        if child.size_bytes >= _LEAST_NAMED_SHARE * top.size_bytes
    )
    return f"{peak}: {', '.join(parts)}"


def _short(node: OwnerNode) -> str:
    """Return its name such that a heading stays short."""
    name = words(node.name) if node.category else node.name
    return name if len(name) <= _LONGEST_NAME else f"…{name[1 - _LONGEST_NAME :]}"
