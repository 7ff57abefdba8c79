"""What a recording can be told, by ``install()``, ``gpumemtrace run`` and the environment.

The environment is how the launcher speaks to the processes that the script starts:

=====================================  ==========================================================
``GPUMEMTRACE``                        ``1`` = record this process and its children; ``0`` or
                                       unset = don't
``GPUMEMTRACE_OUTPUT``                 file, folder or pattern (see `output_path`)
``GPUMEMTRACE_FORCE``                  ``1`` = overwrite
``GPUMEMTRACE_QUIET``                  ``1`` = say nothing at the end
``GPUMEMTRACE_PHASES``                 ``auto``, ``manual`` or ``none``
``GPUMEMTRACE_MODULES``                ``1`` = note which module makes each event
``GPUMEMTRACE_STACKS``                 ``python`` = note which line makes each allocation
``GPUMEMTRACE_STACKS_MIN_BYTES``       of so many bytes or more
``GPUMEMTRACE_STACKS_STEPS``           ``A:B`` = in these steps only (B not included)
``GPUMEMTRACE_CONFIDENTIAL``           ``1`` = leave paths out of the trace
``GPUMEMTRACE_TIME_RESOLUTION_NS``     see ``install``
``GPUMEMTRACE_RING_BYTES``             see ``install``
``GPUMEMTRACE_ON_FULL``                ``drop`` or ``block``
``GPUMEMTRACE_BLOCK_TIMEOUT_MS``       see ``install``
``GPUMEMTRACE_FLIGHT_RECORDER``        a time like ``60s``: see ``install``
``GPUMEMTRACE_FLIGHT_RECORDER_BYTES``  see ``install``
``GPUMEMTRACE_DEVICE_SAMPLE_INTERVAL_MS``  see ``install``
``GPUMEMTRACE_MAX_DISK``               see ``install``
``GPUMEMTRACE_PARENT``                 set by us: the process that the output's plain name is for
=====================================  ==========================================================
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, fields
from typing import Any

from gpumemtrace.units import parse_bytes, parse_seconds

__all__ = ["RecordingOptions", "is_switched_on"]

_PREFIX = "GPUMEMTRACE_"
_LEAST_DISK_BYTES = 1 << 20
_ON_FULL = ("drop", "block")
_PHASES = ("auto", "manual", None)


@dataclass(frozen=True, kw_only=True)
class RecordingOptions:
    """Checked options of one recording. Wrong values raise ``ValueError`` or ``TypeError``."""

    output: str | None = None
    phases: str | None = "auto"
    on_full: str = "drop"
    force: bool = False
    quiet: bool = False
    modules: bool = False
    stacks: str | None = None
    stacks_min_bytes: int = 0
    stacks_steps: range | None = None
    confidential: bool = False
    time_resolution_ns: int = 100
    ring_bytes: int = 8 << 20
    block_timeout_ms: int = 20
    flight_recorder: str | None = None
    flight_recorder_bytes: int = 64 << 20
    device_sample_interval_ms: int = 50
    max_disk: str | int | None = None

    def __post_init__(self) -> None:
        if self.phases not in _PHASES:
            raise ValueError(f'phases is "auto", "manual" or None, not {self.phases!r}')
        if self.on_full not in _ON_FULL:
            raise ValueError(
                f'on_full={self.on_full!r} does not exist; there is "drop": the newest events are '
                'dropped, counted, and told of in the file; and "block": the program waits for room'
            )
        for name in ("modules", "confidential"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} is True or False, not {getattr(self, name)!r}")
        if self.stacks not in (None, "python"):
            raise ValueError(f'stacks is "python" or None, not {self.stacks!r}')
        if self.stacks_steps is not None and not isinstance(self.stacks_steps, range):
            raise TypeError(f"stacks_steps is a range of steps, not {self.stacks_steps!r}")
        if self.stacks is None and (self.stacks_steps is not None or self.stacks_min_bytes):
            raise ValueError(
                'stacks_steps and stacks_min_bytes say of which allocations stacks="python" takes '
                "the stack: give that too"
            )
        if self.stacks_steps is not None and self.phases is None:
            raise ValueError("stacks_steps needs steps, which are not recorded with phases=None")
        _check_integer("stacks_min_bytes", self.stacks_min_bytes, 0, 1 << 62)
        _check_integer("time_resolution_ns", self.time_resolution_ns, 1, 1_000_000_000)
        _check_integer("ring_bytes", self.ring_bytes, 4096, 16 << 30)
        _check_integer("block_timeout_ms", self.block_timeout_ms, 1, 10_000)
        _check_integer("flight_recorder_bytes", self.flight_recorder_bytes, 1 << 20, 1 << 40)
        if self.flight_recorder is not None and not 1 <= self.flight_window_ms <= 7 * 86_400_000:
            raise ValueError(f"flight_recorder is between 1ms and 168h, not {self.flight_recorder}")
        if self.max_disk is not None:
            if not isinstance(self.max_disk, (str, int)) or isinstance(self.max_disk, bool):
                raise TypeError(
                    'max_disk is a size like "2GiB" or a whole number of bytes, '
                    f"not {self.max_disk!r}"
                )
            if not _LEAST_DISK_BYTES <= self.max_disk_bytes <= 1 << 62:
                raise ValueError(f"max_disk (--max-disk) is 1MiB or more, not {self.max_disk}")
            if self.flight_recorder is not None:
                raise ValueError(
                    "max_disk is for a trace that grows with the run; a flight recording does not: "
                    "flight_recorder_bytes (--flight-memory) limits it"
                )
        _check_integer("device_sample_interval_ms", self.device_sample_interval_ms, 0, 3_600_000)

    @property
    def flight_window_ms(self) -> int:
        """Milliseconds that a flight recording keeps; 0 when everything is written."""
        if self.flight_recorder is None:
            return 0
        return round(parse_seconds(self.flight_recorder) * 1000)

    @property
    def max_disk_bytes(self) -> int:
        """``max_disk`` as a number, 0 = no limit."""
        limit = self.max_disk
        return parse_bytes(limit) if isinstance(limit, str) else limit or 0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> RecordingOptions:
        """Read the variables above; the message of a ``ValueError`` names the variable."""
        values: dict[str, Any] = {}
        for field in fields(cls):
            text = environment.get(_PREFIX + field.name.upper())
            if not text:
                continue
            try:
                values[field.name] = _parse(field.name, text)
                cls(**values)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{_PREFIX}{field.name.upper()}={text}: {error}") from None
        return cls(**values)

    def to_environment(self, environment: MutableMapping[str, str] = os.environ) -> None:
        """Set the variables so that processes started from here record in the same way."""
        environment["GPUMEMTRACE"] = "1"
        for field in fields(self):
            name = _PREFIX + field.name.upper()
            value = getattr(self, field.name)
            if value == field.default:
                environment.pop(name, None)
            elif isinstance(value, bool):
                environment[name] = "1" if value else "0"
            elif isinstance(value, range):
                environment[name] = f"{value.start}:{value.stop}:{value.step}"
            else:
                environment[name] = "none" if value is None else str(value)


def is_switched_on(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether ``GPUMEMTRACE`` asks to record this process."""
    return environment.get("GPUMEMTRACE", "0").lower() not in ("", "0", "false", "no", "off")


def _parse(name: str, text: str) -> object:
    if name == "phases":
        return None if text.lower() == "none" else text.lower()
    if name == "stacks":
        return None if text.lower() == "none" else text.lower()
    if name == "stacks_steps":
        return range(*(int(number) for number in text.split(":")))
    if name in ("output", "on_full", "flight_recorder", "max_disk"):
        return text
    if name in ("force", "quiet", "modules", "confidential"):
        return text.lower() not in ("0", "false", "no", "off")
    return int(text)


def _check_integer(name: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is a whole number, not {value!r}")
    if not least <= value <= most:
        raise ValueError(f"{name} is between {least} and {most}, not {value}")
