"""Tag events: what a piece of device memory is for, and what it is called."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpumemtrace import _core

__all__ = ["BUFFER", "GRADIENT", "OPTIMIZER_STATE", "PARAMETER", "UNKNOWN", "tag_tensor"]

# schema.Category, without importing numpy into the user's process.
UNKNOWN, PARAMETER, BUFFER, GRADIENT, OPTIMIZER_STATE = range(5)


def tag_tensor(tensor: Any, name: str, category: int = UNKNOWN, site: int = 0) -> None:
    """Tag the device memory of ``tensor``; nothing happens if it has none. ``site``: whose it is.

    The events name ranges of addresses in bytes, as they are now: the allocations that hold them
    at this moment of the recording are meant.
    """
    for part, suffix in _parts(tensor):
        try:
            if not part.is_cuda:
                continue
            address = part.data_ptr()
            size_bytes = _extent_bytes(part)
            device = part.device.index
        except (AttributeError, RuntimeError, NotImplementedError):
            continue  # no memory of its own: meta, fake, functorch, sparse
        if address and size_bytes:
            string = _core.define_string(name + suffix)
            _core.push_tag(address, size_bytes, category, string, device, site)


def _extent_bytes(tensor: Any) -> int:
    """Return the bytes from the first to the last element."""
    if tensor.numel() == 0:
        return 0
    if tensor.is_contiguous():
        return int(tensor.numel() * tensor.element_size())
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return int((last + 1) * tensor.element_size())


def _parts(tensor: Any) -> Iterator[tuple[Any, str]]:
    """Yield the plain tensors that ``tensor`` is made of, with what to add to its name."""
    flatten = getattr(type(tensor), "__tensor_flatten__", None)
    if flatten is None:
        yield tensor, ""
        return
    try:
        names, _ = flatten(tensor)
    except Exception:  # a half-built subclass: not ours to judge
        return
    for name in names:
        for part, suffix in _parts(getattr(tensor, name)):
            # A DTensor holds one local tensor: that is simply the tensor.
            yield part, suffix if len(names) == 1 else f".{name}{suffix}"
