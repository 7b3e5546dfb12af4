"""The HTTP edge: a thin module per resource, and how numbers and errors are written."""
