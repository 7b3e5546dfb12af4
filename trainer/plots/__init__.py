"""Plots that `fit` and `evaluate` add to an artefact, as PNG files.

Rows are in the user's units. Images are shown as images, tables in the plane in which they vary
most, and a single column as a histogram. `artefact.py` says which plots an artefact has.
"""
