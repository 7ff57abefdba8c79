"""What phases change, as a table."""

from __future__ import annotations

from gpumemtrace.analysis.aged import describe_ranges
from gpumemtrace.analysis.phase_changes import DevicePhaseChanges, PhaseChanges
from gpumemtrace.cli.console import make_console, make_table
from gpumemtrace.units import format_bytes, format_count

__all__ = ["print_changes"]


def print_changes(changes: PhaseChanges, *, each_step: bool) -> None:
    """Print a row per phase (and step) of each device."""
    console = make_console()
    for device in changes.devices:
        steps = f"steps {changes.number[0]} to {changes.number[-1]}"
        title = f"cuda:{device.device}, {steps}" + ("" if each_step else ", mean per step")
        if changes.merged_steps:
            others = format_count(changes.merged_steps, "other")
            title += f" ({others} share summaries: their phases are not known)"
        columns = ["phase", "allocated", "reserved", "host", "device used"]
        table = make_table(console, title, ["step", *columns] if each_step else columns)
        if each_step:
            table.columns[1].justify = "left"
            told = zip(changes.number.tolist(), changes.count.tolist(), strict=True)
            for row, (number, count) in enumerate(told):
                name = describe_ranges([(number, number + count - 1)])
                for cells in _rows(changes, device, slice(row, row + 1)):
                    table.add_row(name, *cells)
        else:
            for cells in _rows(changes, device, slice(None)):
                table.add_row(*cells)
        console.print(table)


def _rows(changes: PhaseChanges, device: DevicePhaseChanges, steps: slice) -> list[list[str]]:
    rows = []
    for i, name in enumerate([*changes.phases, None]):
        allocated, reserved = device.allocated_bytes[steps, i], device.reserved_bytes[steps, i]
        used = int(device.device_used_bytes[steps, i].max())
        host = None if changes.host_bytes is None else changes.host_bytes[steps, i]
        if (
            not allocated.any()
            and not reserved.any()
            and used < 0
            and (host is None or not host.any())
        ):
            continue
        rows.append(
            [
                name or "(no phase)",
                _signed(float(allocated.mean())),
                _signed(float(reserved.mean())),
                "not sampled" if host is None else _signed(float(host.mean())),
                format_bytes(used) if used >= 0 else "",
            ]
        )
    return rows


def _signed(size_bytes: float) -> str:
    return f"{'+' if size_bytes > 0 else ''}{format_bytes(size_bytes)}"
