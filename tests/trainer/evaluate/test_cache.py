"""What is made of the data alone is made once."""

import torch

from trainer.evaluate.cache import cached, folder


def test_the_second_time_nothing_is_made(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = []

    def make():
        made.append(1)
        return {"x": torch.arange(len(made) + 2)}

    assert cached("kind", ("data", 1), make)["x"].tolist() == [0, 1, 2]
    assert cached("kind", ("data", 1), make)["x"].tolist() == [0, 1, 2]
    assert len(made) == 1
    cached("kind", ("data", 2), make)
    cached("other", ("data", 1), make)
    assert len(made) == 3 and len(list(folder().iterdir())) == 3


def test_a_broken_file_is_made_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cached("kind", 1, lambda: {"x": torch.zeros(3)})
    (path,) = folder().iterdir()
    path.write_bytes(path.read_bytes()[:20])
    assert cached("kind", 1, lambda: {"x": torch.ones(3)})["x"].tolist() == [1, 1, 1]
    assert cached("kind", 1, dict)["x"].tolist() == [1, 1, 1]


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    for _ in range(2):
        assert cached("kind", 1, lambda: {"x": torch.ones(1)})["x"].tolist() == [1]
