"""A models folder with one small shipped model."""

from pathlib import Path

import pytest

MODELS = Path(__file__).parents[3] / "models"


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    (folder / "digits-dae").symlink_to(MODELS / "digits-dae")
    return folder
