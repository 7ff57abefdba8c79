"""The telltale sizes of `witness`: a place in a program -> the bytes that are allocated there."""

PLACES = (
    "init",
    "collate",
    "batch",
    "forward",
    "checkpointed",
    "eval",
    "loss",
    "backward",
    "clip",
    "step",
    "after_step",
)
SIZE = {place: 10_001 + 1_000 * number for number, place in enumerate(PLACES)}
