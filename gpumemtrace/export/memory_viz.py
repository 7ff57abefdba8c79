"""A memory snapshot as PyTorch writes it, for pytorch.org/memory_viz and `torch.cuda._memory_viz`.

Where PyTorch has the stack of an allocation, this has its call stack and its module
(``module:0:layers.3``) as far as the trace tells them, and at last a frame with its step and phase
(``step:12:backward``), so that the viewer and its flame graphs tell all three. Phases and steps are
``external_annotations`` too. What a snapshot can't say is left out: threads, samples of the device,
time in the driver.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from gpumemtrace import _core
from gpumemtrace.export.formats import ExportOptions, Written
from gpumemtrace.export.plain_pickle import PROTOCOL, RowTemplate, encode, memoized
from gpumemtrace.export.site_frames import SiteFrames
from gpumemtrace.export.snapshot_annotations import Annotations
from gpumemtrace.export.snapshot_entries import ACTIONS, Entries, EntryStream, text_of
from gpumemtrace.export.snapshot_segments import feed_segments, segments_of
from gpumemtrace.records import Batch
from gpumemtrace.trace_data import TraceData
from gpumemtrace.units import format_count

__all__ = ["write"]

_KEYS = (
    *("action", "addr", "size", "stream", "time_us", "user_metadata", "frames"),
    *("filename", "line", "name", "step", "(no phase)", "device_free", *ACTIONS),
)
_K = {name: i for i, name in enumerate(_KEYS)}
_FRAME = {_K["filename"]: "text", _K["line"]: "int", _K["name"]: "text"}
_ENTRY = {
    _K["action"]: "text",
    _K["addr"]: "long",
    _K["size"]: "long",
    _K["stream"]: "long",
    _K["time_us"]: "long",
    _K["user_metadata"]: "text",
    _K["frames"]: _FRAME,
}
_BATCH = 1000  # entries that are appended at once, as Python's pickler does


def write(trace: TraceData, output: Path, options: ExportOptions) -> Written:
    """Write the snapshot as the trace is read; one file beside it for each further device."""
    export = _Export(trace, options)
    with tempfile.TemporaryDirectory(prefix="gpumemtrace-") as folder:
        for batch in trace.chunks(lead_in=True):
            if not export.feed(batch, Path(folder)):
                break
        with output.open("wb") as file:
            export.assemble(file)
    remarks = []
    if export.stream.unknown_frees:
        frees = format_count(export.stream.unknown_frees, "free")
        remarks.append(f"left out: {frees} of blocks that the trace does not know")
    if export.stream.lost_frees:
        frees = format_count(export.stream.lost_frees, "free")
        remarks.append(f"missing in the trace: {frees}, put where the address was handed out again")
    return Written(sum(export.counts.values()), "entries", (*remarks, *export.remarks))


class _Export:
    def __init__(self, trace: TraceData, options: ExportOptions) -> None:
        self._trace = trace
        self._options = options
        self._lines = _core.LineBuilder()
        self._replay = _core.SegmentReplay()
        self.stream = EntryStream(trace)
        self._annotations = Annotations(trace)
        self._files: dict[int, IO[bytes]] = {}
        self.counts: dict[int, int] = {}
        self.remarks: list[str] = []
        self._template = RowTemplate(_ENTRY)
        # Texts by memo number: the keys, then the phases.
        self._texts = [*_KEYS, *trace.phase_names]
        self._site_frames = SiteFrames(trace.sites)
        self._site_bytes = self._site_frames.encoded(len(self._texts))
        # A row ends with the frame of its step: those of its site go before that.
        self._step_frame_bytes = self._template.length_of(_FRAME)
        clock = trace.run_record.get("clock")
        begin = clock.get("begin_wall_ns", 0) if isinstance(clock, Mapping) else 0
        self._begin_wall_ns = begin if isinstance(begin, int) else 0

    def feed(self, batch: Batch, folder: Path) -> bool:
        """Take the next batch; returns False when the rest is not wanted."""
        until = self._options.until_ns
        end = len(batch)
        if until is not None:
            late = np.flatnonzero(batch.raw["time_ns"] > until)
            end = int(late[0]) if len(late) else end
            first_event, is_lead_in = batch.first_event, batch.is_lead_in
            batch = batch.window(0, end, first_event=first_event, is_lead_in=is_lead_in)
        gone = feed_segments(self._replay, batch)
        lines = self._lines.feed(batch.raw)
        found = self.stream.feed(batch, lines["device"], lines["allocated"], gone)
        if not batch.is_lead_in:
            counts = {}
            for device in sorted({*found, *self.counts}):
                if self._options.wants(device):
                    counts[device] = self._write(device, found.get(device), len(batch), folder)
            self._annotations.feed(batch, counts)
        return end == len(batch)

    def assemble(self, file: IO[bytes]) -> None:
        """Write the whole pickle, with the entries that were written aside."""
        devices = [d for d in self._replay.devices if self._options.wants(d)]
        devices = sorted({*devices, *self.counts})
        own = {"format": 1, "run_record": dict(self._trace.run_record)}
        file.write(PROTOCOL + b"}(" + encode("gpumemtrace") + b"}(" + encode("texts"))
        file.write(memoized(self._texts))
        file.write(encode("frames") + memoized(self._site_frames.all, first=len(self._texts)))
        for name, value in own.items():
            file.write(encode(name) + encode(value))
        file.write(b"u" + encode("device_traces") + b"](")
        for device in range(max(devices, default=-1) + 1):
            file.write(b"](")
            if device in self._files:
                part = self._files[device]
                part.seek(0)
                while piece := part.read(1 << 20):
                    file.write(piece)
                part.close()
            file.write(b"e")
        file.write(b"e" + encode("segments") + b"](")
        for device in devices:
            segments, unknown = segments_of(
                self._replay, device, self.stream, self._trace.phase_names, self._site_frames
            )
            file.write(b"".join(map(encode, segments)))
            if unknown:
                self.remarks.append(
                    f"cuda:{device}: the segments are not known for sure: events were lost, or the "
                    "trace has none"
                )
        annotations = self._annotations.to_list(devices, self._begin_wall_ns)
        file.write(b"e" + encode("external_annotations") + encode(annotations))
        file.write(encode("allocator_settings") + encode({}) + b"u.")

    def _write(
        self, device: int, entries: Entries | None, records: int, folder: Path
    ) -> npt.NDArray[np.int64]:
        """Write a device's entries; returns how many come before each record of the batch."""
        if device not in self._files:
            self._files[device] = (folder / f"{device}.part").open("w+b")
            self.counts[device] = 0
        before = np.full(records, self.counts[device])
        if entries is not None:
            self._files[device].write(b"".join(self._encoded(entries)))
            before += np.searchsorted(entries.rows, np.arange(records))
            self.counts[device] += len(entries.rows)
        return before

    def _encoded(self, entries: Entries) -> list[bytes]:
        c = entries.columns
        phase = np.where(c["phase"] >= 0, c["phase"] + len(_KEYS), _K["(no phase)"])
        rows = self._template.encode(
            {
                str(_K["action"]): c["action"] + _K[ACTIONS[0]],
                str(_K["addr"]): c["address"].view(np.int64),
                str(_K["size"]): c["size"],
                str(_K["stream"]): c["stream"].view(np.int64),
                str(_K["time_us"]): (c["time_ns"] + self._begin_wall_ns) // 1000,
                str(_K["user_metadata"]): phase,
                f"{_K['frames']}/{_K['filename']}": np.full(len(phase), _K["step"]),
                f"{_K['frames']}/{_K['line']}": np.minimum(c["step"], (1 << 31) - 1),
                f"{_K['frames']}/{_K['name']}": phase,
            }
        )
        rare = np.flatnonzero(np.isin(c["action"], (_OOM, _ANNOTATE))).tolist()
        parts, first = [], 0
        for row in [*rare, len(rows)]:
            parts.append(self._with_sites(rows[first:row], c["site"][first:row]))
            if row < len(rows):
                parts.append(encode(self._rare(entries, row)))
            first = row + 1
        return parts

    def _with_sites(self, rows: npt.NDArray[np.uint8], site: npt.NDArray[np.int64]) -> bytes:
        """Return the rows as bytes, with the frames of their sites."""
        added = self._site_bytes
        known = np.flatnonzero((site > 0) & (site < len(added)))
        if not len(known):
            return rows.tobytes()
        cut = rows.shape[1] - self._step_frame_bytes
        parts, first = [], 0
        for row in known.tolist():
            parts += [rows[first:row].tobytes(), rows[row, :cut].tobytes(), added[int(site[row])]]
            parts.append(rows[row, cut:].tobytes())
            first = row + 1
        return b"".join([*parts, rows[first:].tobytes()])

    def _rare(self, entries: Entries, row: int) -> dict[str, Any]:
        c = entries.columns
        phase = self._trace.phase_name(int(c["phase"][row])) or ""
        is_oom = c["action"][row] == _OOM
        only = {"device_free": int(c["extra"][row])} if is_oom else {"addr": int(c["address"][row])}
        return {
            "action": ACTIONS[int(c["action"][row])],
            **only,
            "size": int(c["size"][row]),
            "stream": int(c["stream"][row]),
            "time_us": (int(c["time_ns"][row]) + self._begin_wall_ns) // 1000,
            "user_metadata": phase if is_oom else text_of(self._trace, entries, row),
            "frames": [{"filename": "step", "line": int(c["step"][row]), "name": phase}],
        }


_OOM, _ANNOTATE = ACTIONS.index("oom"), ACTIONS.index("annotate")
