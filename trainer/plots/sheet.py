"""Figures: a sheet of images with its labels pixel by pixel, or axes for curves and points.

Figures are made without pyplot, which keeps every figure and the choice of backend in globals.
"""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from trainer.atomic_files import replace_file
from trainer.plots.mosaic import Layout, Pixels, mosaic
from trainer.plots.view import Float

DPI = 100
MARGIN, LINE = 14, 16  # pixels around a sheet, and of a line of text
LETTER = 6.3  # pixels, of the small print
INK, FAINT = "#2b2f36", "#b4bac4"
ACCENT, SECOND = "#2f6690", "#d1603d"


def blank(width: float, height: float) -> Figure:
    """A white figure of so many inches, whose axes make room for each other's labels."""
    room = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white", layout=room)
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: Path) -> None:
    with replace_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=DPI)


def draw_sheet(
    images: Pixels,
    columns: int,
    path: Path,
    *,
    title: str,
    headings: Sequence[str] = (),
    captions: Sequence[str] = (),
    group: int = 0,
) -> None:
    """Images (n, h, w, 3) in reading order; headings over columns, captions under images."""
    layout = _layout(images, columns, headings, captions, group)
    H, W = layout.size
    above = MARGIN + LINE + (LINE if headings else 0) + 4
    width = max(W, int(1.25 * LETTER * len(title))) + 2 * MARGIN
    height = above + H + (LINE if captions else 0) + MARGIN
    figure = blank(width / DPI, height / DPI)
    figure.figimage(mosaic(images, layout), MARGIN, height - above - H, origin="upper")

    def write(text: str, x: float, y: float, **how: object) -> None:
        figure.text(x / width, 1 - y / height, text, color=INK, parse_math=False, **how)  # type: ignore[arg-type]

    write(title, MARGIN, MARGIN + LINE - 6, fontsize=9, fontweight="bold")
    for j, text in enumerate(headings):
        middle = MARGIN + layout.left(j) + layout.width / 2
        write(text, middle, above - 6, fontsize=8, ha="center")
    for k, text in enumerate(captions):
        i, j = divmod(k, columns)
        middle = MARGIN + layout.left(j) + layout.width / 2
        below = above + layout.top(i) + layout.height
        write(text, middle, below + LINE - 4, fontsize=8, ha="center")
    save(figure, path)


def _layout(
    images: Pixels, columns: int, headings: Sequence[str], captions: Sequence[str], group: int
) -> Layout:
    """Cells as large as the images, or as wide as the words over and under them."""
    n, h, w = images.shape[:3]
    words = max((len(text) for text in (*headings, *captions)), default=0)
    width = max(w, int(LETTER * words))
    row_gap = LINE + 6 if captions else 3
    return Layout(-(-n // columns), columns, h, width, row_gap=row_gap, group=group)


def plain_axes(axes: Axes, title: str = "") -> Axes:
    """Two thin lines instead of a box, small print."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(labelsize=8, color=FAINT, labelcolor=INK)
    axes.set_title(title, fontsize=10, color=INK, loc="left", parse_math=False)
    return axes


def label(axes: Axes, x: str, y: str = "") -> None:
    axes.set_xlabel(x, fontsize=9, color=INK, parse_math=False)
    axes.set_ylabel(y, fontsize=9, color=INK, parse_math=False)


def set_frame(axes: Axes, limits: Float) -> None:
    """Limits (2, 2); one unit is equally long on both axes unless that would squeeze one."""
    (left, bottom), (right, top) = limits.tolist()
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    if 0.25 < (top - bottom) / (right - left) < 4:
        axes.set_aspect("equal", adjustable="box")
