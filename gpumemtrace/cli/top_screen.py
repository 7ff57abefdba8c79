"""One look at a running trace: a screen for a terminal, a line for a pipe."""

from __future__ import annotations

from rich.console import Console, Group
from rich.text import Text

from gpumemtrace.analysis.lines import LINES
from gpumemtrace.analysis.live import LiveDevice, LiveStatus
from gpumemtrace.cli.console import make_table
from gpumemtrace.units import format_bytes, format_count, format_duration

__all__ = ["status_line", "status_screen"]

# A recorder that lives writes at least ten times a second.
_SILENT_S = 5.0


def status_screen(console: Console, status: LiveStatus) -> Group:
    """Return what the terminal shows."""
    parts: list[object] = [Text(_heading(status))]
    for device in status.devices:
        title = f"\ncuda:{device.device}"
        if device.facts.name:
            title += f" {device.facts.name}"
        table = make_table(console, title, ["", "now", "peak", "of the device"])
        for name in LINES:
            if name in device.now:
                table.add_row(
                    name.replace("_", " "),
                    format_bytes(device.now[name]),
                    format_bytes(device.peak[name]),
                    _share(device, name),
                    style="bold" if name == "allocated" else "",
                )
        parts.append(table)
    if not status.devices:
        parts.append(Text("no CUDA memory was allocated yet"))
    return Group(*parts)  # type: ignore[arg-type]


def status_line(status: LiveStatus) -> str:
    """Return it in one line."""
    memory = [
        f"cuda:{device.device} allocated {format_bytes(device.now['allocated'])} "
        f"(peak {format_bytes(device.peak['allocated'])})"
        for device in status.devices
    ]
    return "  ".join([_heading(status), *memory])


def _heading(status: LiveStatus) -> str:
    phase = "/".join(status.phase) or "no phase"
    parts = [f"step {status.step:,}", phase, format_duration(status.duration_s)]
    rate = "" if status.events_per_s is None else f" ({status.events_per_s:,.0f}/s)"
    parts += [f"{format_count(status.events, 'event')}{rate}", format_bytes(status.file_bytes)]
    if status.dropped_events:
        parts.append(f"{format_count(status.dropped_events, 'event')} lost")
    if status.is_closed:
        parts.append("ended")
    elif status.is_over:
        parts.append("cut short: its process is gone")
    elif status.age_s > _SILENT_S:
        parts.append(f"nothing written for {format_duration(status.age_s)}")
    return ", ".join(parts)


def _share(device: LiveDevice, line: str) -> str:
    capacity = device.facts.capacity_bytes
    return f"{device.now[line] / capacity:.1%}" if capacity else ""
