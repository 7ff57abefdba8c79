"""What a figure says, as text."""

from __future__ import annotations

from matplotlib.figure import Figure


def texts(figure: Figure) -> str:
    found = [text.get_text() for text in figure.texts]
    found += [text.get_text() for ax in figure.axes for text in ax.texts]
    for legend in figure.legends:
        found += [legend.get_title().get_text()]
        found += [text.get_text() for text in legend.get_texts()]
    return "\n".join(found)
