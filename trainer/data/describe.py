"""A data set on one screen, for `python -m trainer data PATH`."""

import numpy as np

from trainer.data.dataset import Dataset
from trainer.data.inspection import Examination

_FEATURES = 10


def describe(dataset: Dataset, examination: Examination) -> str:
    facts = {
        "name": dataset.name,
        "rows": f"{dataset.rows:,}",
        "inputs": f"{dataset.dims:,} ({dataset.source.dtype})",
        "picture": "×".join(map(str, dataset.image)) if dataset.image else "no",
        "labels": _labels(dataset),
        "range": f"{examination.minimum.min():.6g} to {examination.maximum.max():.6g}",
        "normaliser": _normaliser(examination),
        "decoder": examination.decoder,
        "fingerprint": _short(dataset.fingerprint),
    }
    lines = [f"{key:<12} {value}" for key, value in facts.items()]
    notes = [f"note         {note}" for note in (*dataset.notes, *examination.notes)]
    return "\n".join([*lines, *notes, "", *_features(dataset, examination)])


def _labels(dataset: Dataset) -> str:
    return "no" if dataset.labels is None else f"{len(np.unique(dataset.labels))} classes"


def _short(fingerprint: str) -> str:
    kind, digest = fingerprint.split(":")
    return f"{kind}:{digest[:16]}"


def _normaliser(examination: Examination) -> str:
    shift, scale = examination.shift, examination.scale
    if np.ptp(shift) or np.ptp(scale):
        return "(x - shift) / scale, per column"
    if shift[0] == 0 and scale[0] == 1:
        return "none"
    return f"x / {scale[0]:g}" if shift[0] == 0 else f"(x - {shift[0]:.6g}) / {scale[0]:.6g}"


def _features(dataset: Dataset, examination: Examination) -> list[str]:
    names = [dataset.feature(j).split(" ", 1)[1] for j in range(min(_FEATURES, dataset.dims))]
    width = max(12, *(len(n) for n in names))
    lines = [f"{'feature':<{width}} {'min':>12} {'max':>12} {'mean':>12} {'std':>12}"]
    for j, name in enumerate(names):
        values = (examination.minimum[j], examination.maximum[j], examination.mean[j],
                  examination.std[j])  # fmt: skip
        lines.append(f"{name:<{width}} " + " ".join(f"{v:>12.5g}" for v in values))
    more = dataset.dims - len(names)
    return [*lines, f"... and {more:,} more"] if more else lines
