"""Whose memory it is: the peak, and all that was allocated, by module and by call site."""

from __future__ import annotations

from typing import Any

from gpumemtrace.analysis.owner_tree import DeviceOwners, OwnerNode
from gpumemtrace.report.group_rows import group_rows
from gpumemtrace.report.results import Results

__all__ = ["NAME", "TITLE", "gather"]

NAME = "modules"
TITLE = "Whose memory it is"

# Of a tree's bytes; smaller boxes are told together.
_LEAST_SHARE = 1 / 2000


def gather(results: Results) -> dict[str, Any]:
    """Return each device's trees, and the groups of its peak."""
    found = [device for device in results.owner_trees if device.trees]
    if not found:
        return {
            "unknown": "Not known: the trace tells neither modules nor call sites. Record with "
            "gpumemtrace run --modules, or --stacks python."
        }
    return {"devices": [_device(device) for device in found]}


def _device(device: DeviceOwners) -> dict[str, Any]:
    return {
        "device": device.device,
        "bytes": device.peak.size_bytes,
        "trees": [
            {
                "by": tree.by,
                "of": tree.of,
                "root": _node(tree.root.merged(_LEAST_SHARE * tree.root.size_bytes)),
            }
            for tree in device.trees
        ],
        "groups": {by: group_rows(device.peak, by) for by in device.peak.owners.known},
    }


def _node(node: OwnerNode) -> dict[str, Any]:
    """Return a node as JSON; what it lacks is left out, since there are thousands."""
    found: dict[str, Any] = {"name": node.name, "bytes": node.size_bytes, "blocks": node.blocks}
    if node.category:
        found["category"] = node.category
    if node.children:
        found["children"] = [_node(child) for child in node.children]
    return found
