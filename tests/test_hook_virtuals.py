"""The hook forwards every virtual of torch's CUDA allocators, in the torch that it was built for.

Read from the headers of the installed torch, so that a torch which gains one fails here, before a
user's program meets the base class's "not supported".
"""

import importlib.util
import re
from pathlib import Path

import pytest

from gpumemtrace import build_info

CSRC = Path(__file__).resolve().parent.parent / "csrc/torch"

# Where the virtuals are declared: (header, how the class begins).
BASES = [
    ("c10/core/Allocator.h", r"struct C10_API Allocator\b"),
    ("c10/core/CachingDeviceAllocator.h", r"struct C10_API DeviceAllocator\b"),
    ("c10/cuda/CUDACachingAllocator.h", r"class (?:C10_CUDA_API )?CUDAAllocator\b"),
]
PLUGGABLE = ("torch/csrc/cuda/CUDAPluggableAllocator.h", r"struct TORCH_CUDA_CPP_API CUDAPluggable")

# Final in the stock pluggable allocator, which does there what the native allocator does.
CAN_NOT_BE_OVERRIDDEN = {"copy_data"}


def torch_include() -> Path:
    if why := build_info.why_no_hook():
        pytest.skip(f"no torch hook in this build: {why}")
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "include"


def class_body(header: Path, begins: str) -> str:
    """The text between the braces of a class, without comments; empty where there is none."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", header.read_text(), flags=re.DOTALL)
    found = re.search(begins + r"[^;{]*\{", text)
    if found is None:
        return ""
    depth, end = 1, found.end()
    while depth:
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        end += 1
    return text[found.end() : end - 1]


def virtuals(body: str) -> set[str]:
    """``name/number of parameters`` of each function declared ``virtual``."""
    found = re.findall(r"\bvirtual\b([^;{=]*?)(?<![~\w])(\w+)\s*\(((?:[^()]|\([^()]*\))*)\)", body)
    return {f"{name}/{arity(parameters)}" for _, name, parameters in found}


def overrides(body: str) -> set[str]:
    """The same of each function marked ``override`` (a destructor aside)."""
    found = re.findall(
        r"(?<![~\w])(\w+)\s*\(((?:[^()]|\([^()]*\))*)\)\s*(?:const\s*)?(?:noexcept\s*)?override",
        body,
    )
    return {f"{name}/{arity(parameters)}" for name, parameters in found}


def arity(parameters: str) -> int:
    """How many parameters a list has: its commas outside of brackets, plus one."""
    flat = parameters.strip()
    while (stripped := re.sub(r"<[^<>]*>|\([^()]*\)|\{[^{}]*\}", "", flat)) != flat:
        flat = stripped
    return flat.count(",") + 1 if flat else 0


def preprocess(text: str, version: tuple[int, int]) -> str:
    """Our header as that torch sees it: the ``#if GPUMEMTRACE_TORCH_AT_LEAST`` blocks decided."""
    kept, stack = [], []
    for line in text.splitlines():
        condition = re.match(r"\s*#\s*(if|elif)\s+GPUMEMTRACE_TORCH_AT_LEAST\((\d+), (\d+)\)", line)
        if condition:
            holds = version >= (int(condition[2]), int(condition[3]))
            if condition[1] == "if":
                stack.append([holds, holds])
            else:
                taken = stack[-1][1]
                stack[-1] = [holds and not taken, taken or holds]
        elif re.match(r"\s*#\s*else", line):
            stack[-1] = [not stack[-1][1], True]
        elif re.match(r"\s*#\s*endif", line):
            stack.pop()
        elif all(active for active, _ in stack):
            kept.append(line)
    return "\n".join(kept)


def built_for() -> tuple[int, int]:
    version = build_info.torch_version()
    if version is None:
        pytest.skip(f"no torch hook in this build: {build_info.why_no_hook()}")
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def forwarded() -> set[str]:
    text = preprocess((CSRC / "forwarding_allocator.h").read_text(), built_for())
    return overrides(text)


def declared() -> set[str]:
    include = torch_include()
    found: set[str] = set()
    for header, begins in BASES:
        found |= virtuals(class_body(include / header, begins))
    return {entry for entry in found if not entry.startswith("~")}


def test_every_virtual_is_forwarded() -> None:
    missing = {
        entry
        for entry in declared() - forwarded()
        if entry.split("/")[0] not in CAN_NOT_BE_OVERRIDDEN
    }
    assert not missing, f"add to csrc/torch/forwarding_allocator.h: {sorted(missing)}"


def test_what_the_stock_allocator_overrides_is_overridden_again() -> None:
    header, begins = PLUGGABLE
    stock = overrides(class_body(torch_include() / header, begins))
    assert len(stock) > 30, "the header is not read right"
    names = {entry.split("/")[0] for entry in stock} - CAN_NOT_BE_OVERRIDDEN
    assert names <= {entry.split("/")[0] for entry in forwarded()}


def test_the_headers_are_read_right() -> None:
    found = declared()
    assert {"allocate/1", "raw_deleter/0", "is_simple_data_ptr/1", "memcpyAsync/7"} <= found
    assert {"recordStream/2", "getDeviceStats/1", "setCheckpointPoolState/2"} <= found
    assert len(found) >= 38


def test_a_new_virtual_would_be_noticed() -> None:
    body = """
      virtual void* raw_alloc(size_t nbytes) = 0;
      virtual std::pair<size_t, std::map<int, int>> brandNew(
          c10::DeviceIndex /*device*/, std::function<bool(int, int)> filter = {0, 0}) {
        return {};
      }
    """
    assert virtuals(body) - forwarded() == {"brandNew/2"}


def test_forwarding_goes_to_the_same_name() -> None:
    # A slip such as enable() calling isEnabled() compiles.
    text = preprocess((CSRC / "forwarding_allocator.h").read_text(), built_for())
    bodies = re.findall(
        r"(?<![~\w])(\w+)\s*\((?:[^()]|\([^()]*\))*\)\s*(?:const\s*)?override\s*\{([^{}]*)\}", text
    )
    assert len(bodies) > 38
    wrong = [name for name, body in bodies if f"{name}(" not in body]
    assert not wrong
