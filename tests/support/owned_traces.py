"""A training step of a made-up transformer, with the module and the lines of every block."""

from __future__ import annotations

from synthetic import MIB, TraceBuilder

from gpumemtrace.schema import Category

__all__ = ["transformer"]

_PARTS = ("norm", "attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.o_proj", "mlp.up", "mlp.down")
_LINEAR = ("/env/site-packages/torch/nn/modules/linear.py", 134, "Linear.forward")
_BLOCK = ("/code/model.py", 41, "Block.forward")
_MODEL = ("/code/model.py", 73, "Net.forward")
_TRAIN = ("/code/train.py", 19, "train")
_MAIN = ("/code/train.py", 31, "<module>")


def transformer(layers: int, *, stacks: bool = True, steps: int = 2) -> TraceBuilder:
    """Return it with ``7 * layers + 2`` modules that make blocks."""
    devices = [{"index": 0, "name": "card", "memory_bytes": 16 << 30}]
    builder = TraceBuilder(run_record={"script": "train", "devices": devices})
    address = 1 << 30
    live: list[int] = []

    def make(size: int, module: str, *frames: tuple[str, int, str]) -> int:
        nonlocal address
        site = builder.site(module, *(frames if stacks else ()), root="Net") if module else 0
        builder.alloc(address, size, site=site)
        live.append(address)
        address += size
        return live[-1]

    paths = [("embed", 32 * MIB)]
    for i in range(layers):
        paths += [(f"layers.{i}.{part}", (1 if part == "norm" else 4) * MIB) for part in _PARTS]
    paths.append(("head", 32 * MIB))
    builder.phase("init")
    for path, size in paths:
        builder.tag(make(size // 4, ""), f"{path}.weight", Category.PARAMETER)
    stays = len(live)
    for step in range(steps):
        builder.phase("forward")
        for path, size in paths:
            inner = (_LINEAR, _BLOCK) if path.startswith("layers") else (_LINEAR,)
            make(size, path, *inner, _MODEL, _TRAIN, _MAIN)
        make(3 * MIB, "", _TRAIN, _MAIN)
        builder.phase("backward")
        for path, size in reversed(paths):
            block = make(size // 4, path, _LINEAR, _MODEL, _TRAIN, _MAIN)
            builder.tag(block, f"{path}.weight", Category.GRADIENT)
        while len(live) > stays:
            builder.free(live.pop())
        builder.phase("").step(step + 1)
    return builder
