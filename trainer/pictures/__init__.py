"""What a run leaves as PNG beside its checkpoint, for people who would rather look than read.

Rows are in the user's units. Data that is made of images is shown as images; a table is shown
in the plane where it spreads most, and a single column as a histogram.
"""

from trainer.pictures.classes import draw_classes
from trainer.pictures.curves import draw_bandwidths, draw_distances, draw_mixing
from trainer.pictures.filters import draw_filters
from trainer.pictures.losses import draw_losses
from trainer.pictures.neighbours import draw_neighbours
from trainer.pictures.reconstructions import draw_reconstructions
from trainer.pictures.samples import draw_samples
from trainer.pictures.tangents import draw_tangents
from trainer.pictures.view import View

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
