"""The text of the figures: digits that the error supports, and figures of older artefacts."""

from dataclasses import replace

import pytest

from localmoments import artefact as manifests
from trainer.evaluate.report import figures_text, number_with_error


@pytest.mark.parametrize(
    "value, error, text",
    [
        (308.31, 2.27, "308.3 ± 2.3"),
        (0.032613, 0.00151, "0.0326 ± 0.0015"),
        (-0.00021, 0.0008, "-0.00021 ± 0.00080"),
        (1234.5, 56.0, "1234 ± 56"),
        (0.5, 1e-12, "0.500000 ± 0.000000"),
        (0.5, 0.0, "0.5"),
        (0.5, None, "0.5"),
    ],
)
def test_an_error_has_two_digits_and_the_value_the_same_number_of_places(value, error, text):
    assert number_with_error(value, error) == text


def test_figures_without_errors_of_older_artefacts_are_shown(tiny_artefact):
    samples = {"log-likelihood": 300.0, "standard error": 2.0, "coverage": 0.5, "samples": 10}
    figures = {"samples": {"5 chains, mean": samples}, "kernel": "gibbs", "scale": 1.0,
               "features": "2 principal components"}  # fmt: skip
    text = figures_text(replace(manifests.read(tiny_artefact), evaluation=figures))
    assert "| log-likelihood, nats | 300.0 ± 2.0 |" in text and "| coverage | 0.5 |" in text
    assert "Real against real" not in text
