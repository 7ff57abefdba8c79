"""Modules and call stacks as the frames of a PyTorch memory snapshot."""

from __future__ import annotations

from typing import Any

from gpumemtrace.export.plain_pickle import reference_list
from gpumemtrace.sites import Sites

__all__ = ["SiteFrames"]


class SiteFrames:
    """The frames of each site, innermost first, its module last (``module:0:layers.3``).

    ``all``: each distinct frame once.
    """

    def __init__(self, sites: Sites) -> None:
        """Look up all sites of a trace."""
        places: dict[tuple[str, int, str], int] = {}
        self._of_site: list[list[int]] = []
        for site in range(len(sites.module)):
            frames = [(f.file, f.line, f.function) for f in sites.stack(site)]
            module = int(sites.module[site])
            if module >= 0:
                frames.append(("module", 0, sites.module_names[module]))
            self._of_site.append([places.setdefault(one, len(places)) for one in frames])
        self.all = [
            {"filename": file, "line": line, "name": function} for file, line, function in places
        ]

    def of(self, site: int) -> list[dict[str, Any]]:
        """Return the frames of a site; of one whose row was lost, none."""
        mine = self._of_site[site] if site < len(self._of_site) else []
        return [self.all[place] for place in mine]

    def encoded(self, first_memo: int) -> list[bytes]:
        """Return for each site what adds its frames to a list, where `all` are memo numbers."""
        return [
            reference_list([first_memo + place for place in mine]) if mine else b""
            for mine in self._of_site
        ]
