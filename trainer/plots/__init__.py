"""What a run leaves as PNG beside its checkpoint, for people who would rather look than read.

Rows are in the user's units. Data that is made of images is shown as images; a table is shown
in the plane where it spreads most, and a single column as a histogram.
"""

from trainer.plots.classes import draw_classes
from trainer.plots.curves import draw_bandwidths, draw_distances, draw_mixing
from trainer.plots.filters import draw_filters
from trainer.plots.losses import draw_losses
from trainer.plots.neighbours import draw_neighbours
from trainer.plots.reconstructions import draw_reconstructions
from trainer.plots.samples import draw_samples
from trainer.plots.tangents import draw_tangents
from trainer.plots.view import View

__all__ = [
    "View",
    "draw_bandwidths",
    "draw_classes",
    "draw_distances",
    "draw_filters",
    "draw_losses",
    "draw_mixing",
    "draw_neighbours",
    "draw_reconstructions",
    "draw_samples",
    "draw_tangents",
]
