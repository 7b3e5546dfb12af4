"""All models of a folder: newest first, each for itself, looked at again without a restart."""

import json
import logging
import os
import shutil
import threading
from pathlib import Path

import pytest

from localmoments.artefact import MANIFEST
from localmoments.errors import NoModelError, UnknownModelError
from service.engine.repository import FAVOURITE, ModelRepository


class Shelf:
    """A models folder, and copies of the tiny model in it under other names."""

    def __init__(self, folder: Path, artefact: Path) -> None:
        self.folder = folder
        self._artefact = artefact

    def add(self, name: str, version: str = "1", **changes: object) -> Path:
        made = self.folder / ".new-x"
        shutil.copytree(self._artefact, made)
        body = json.loads((made / MANIFEST).read_text()) | {"name": name, "version": version}
        (made / MANIFEST).write_text(json.dumps(body | changes))
        (self.folder / name).mkdir(exist_ok=True)
        made.rename(self.folder / name / version)
        return self.folder / name / version

    def open(self, default: str | None = None) -> ModelRepository:
        repository = ModelRepository(self.folder, default=default, threads=1)
        repository.refresh()
        return repository


@pytest.fixture
def shelf(tiny_artefact: Path, tmp_path: Path) -> Shelf:
    return Shelf(tmp_path, tiny_artefact)


def found(repository: ModelRepository, reference: str | None = None) -> str:
    return repository.find(reference).manifest.reference


def refused(repository: ModelRepository) -> dict[str, str]:
    return {r.model: r.reason for r in repository.catalogue.refused}


def test_the_newest_version_is_the_highest_number(shelf: Shelf) -> None:
    for version in ("2", "10", "9"):
        shelf.add("a", version)
    repository = shelf.open()
    assert found(repository) == found(repository, "a") == "a@10"
    assert found(repository, "a@9") == "a@9" and list(repository.catalogue.models["a"]) == [
        "10", "9", "2",
    ]  # fmt: skip


def test_the_default_is_told_or_the_favourite_or_the_first(shelf: Shelf) -> None:
    shelf.add("b")
    shelf.add("a")
    assert found(shelf.open()) == "a@1"
    shelf.add(FAVOURITE)
    assert found(shelf.open()) == f"{FAVOURITE}@1"
    assert found(shelf.open("b")) == found(shelf.open("b@1")) == "b@1"
    with pytest.raises(UnknownModelError, match=f"no model 'c'; there are a, b, {FAVOURITE}"):
        shelf.open("c").find()


@pytest.mark.parametrize(
    "reference",
    ["", "@", "@1", "a@", "a@2", "a@01", "a@1@1", "A", "../a", "a/1", "/etc", "a\0", "a" * 5000],
)
def test_a_reference_is_looked_up_and_never_a_path(shelf: Shelf, reference: str) -> None:
    shelf.add("a")
    with pytest.raises(UnknownModelError, match=r"there are a") as refusal:
        shelf.open().find(reference)
    assert len(str(refusal.value)) < 200


def test_an_empty_or_missing_folder_has_no_model(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        repository = ModelRepository(folder)
        repository.refresh()
        with pytest.raises(NoModelError, match="empty or not there"):
            repository.find()
        assert repository.catalogue.newest() == []


def test_a_broken_version_is_refused_and_the_one_before_goes_on(shelf: Shelf) -> None:
    shelf.add("a", "1")
    (shelf.add("a", "2") / "weights.safetensors").write_bytes(b"")
    shelf.add("b")
    repository = shelf.open()
    assert found(repository, "a") == "a@1" and found(repository, "b") == "b@1"
    assert refused(repository) == {
        "a@2": "a/2/weights.safetensors was altered: its sha256 is not the manifest's."
    }
    with pytest.raises(UnknownModelError, match=r"no model 'a@2'; there are a@1\."):
        repository.find("a@2")


def test_a_newest_version_whose_graphs_do_not_open_is_refused(shelf: Shelf) -> None:
    shelf.add("a", "1")
    graphs = json.loads((shelf.folder / "a/1" / MANIFEST).read_text())["graphs"]
    graphs["moments"]["inputs"]["x"][1] = 9
    shelf.add("a", "2", graphs=graphs)
    shelf.add("b", "1", graphs={k: v for k, v in graphs.items() if k != "moments"})
    repository = shelf.open()
    assert found(repository, "a") == "a@1"
    assert "moments.onnx takes or gives" in refused(repository)["a@2"]
    assert refused(repository)["b@1"] == "b/1 has no graph named 'moments'."


def test_what_is_not_where_it_says_is_refused(shelf: Shelf) -> None:
    (shelf.folder / "a").mkdir()
    shelf.add("b", "1").rename(shelf.folder / "a/3")
    shelf.add("good")
    for odd in ("Bad Name/1", "a/v2", "a/01", "a/7", ".hidden/1", "a/.new-1"):
        (shelf.folder / odd).mkdir(parents=True)
    (shelf.folder / "file").write_text("")
    repository = shelf.open()
    assert [m.manifest.reference for m in repository.catalogue.newest()] == ["good@1"]
    reasons = refused(repository)
    assert set(reasons) == {"Bad Name", "a@v2", "a@01", "a@7", "a@3"}
    assert reasons["a@3"] == "its manifest calls it b@1." and "no manifest" in reasons["a@7"]


def test_a_fault_that_nobody_foresaw_stops_one_model_only(shelf: Shelf) -> None:
    shelf.add("a")
    (shelf.add("b") / MANIFEST).write_text("[" * 100_000)  # too deep for the parser
    repository = shelf.open()
    assert found(repository, "a") == "a@1" and "RecursionError" in refused(repository)["b@1"]


def test_a_new_version_is_picked_up_and_the_old_one_stays_open(shelf: Shelf) -> None:
    shelf.add("a", "1")
    repository = shelf.open()
    before, old = repository.catalogue, repository.find("a")
    shelf.add("a", "2")
    assert found(repository, "a") == "a@1"
    repository.refresh()
    assert found(repository, "a") == "a@2" and repository.find("a@1") is old
    assert before.find("a") is old  # who holds the old catalogue keeps the old models


def test_what_is_untouched_is_not_opened_again(shelf: Shelf) -> None:
    shelf.add("a")
    (shelf.add("b") / "card.md").write_text("altered")
    repository = shelf.open()
    model, [refusal] = repository.find("a"), repository.catalogue.refused
    repository.refresh()
    assert repository.find("a") is model and repository.catalogue.refused[0] is refusal


def test_a_version_that_breaks_or_goes_is_served_no_more(shelf: Shelf) -> None:
    broken, gone = shelf.add("a", "2"), shelf.add("b", "2")
    shelf.add("a", "1")
    repository = shelf.open()
    sound = (broken / "card.md").read_text()
    (broken / "card.md").write_text("altered")
    shutil.rmtree(gone)
    repository.refresh()
    assert found(repository, "a") == "a@1" and set(refused(repository)) == {"a@2"}
    with pytest.raises(UnknownModelError, match="there are a"):
        repository.find("b")
    (broken / "card.md").write_text(sound)
    os.utime(broken / "card.md", (1, 1))
    repository.refresh()
    assert found(repository, "a") == "a@2" and refused(repository) == {}


def test_changes_are_logged_once(shelf: Shelf, caplog: pytest.LogCaptureFixture) -> None:
    shelf.add("a")
    (shelf.folder / "b/1").mkdir(parents=True)
    with caplog.at_level(logging.INFO):
        repository = shelf.open()
        repository.refresh()
        shutil.rmtree(shelf.folder / "a")
        repository.refresh()
    assert caplog.messages == [
        "a@1 is served, by CPUExecutionProvider", "b@1 is refused: b/1 has no manifest.json.",
        "a@1 is no longer served",
    ]  # fmt: skip


def test_readers_never_see_a_moment_without_a_model(shelf: Shelf) -> None:
    shelf.add("a", "1")
    shelf.add("a", "2")
    repository, stop, seen = shelf.open(), threading.Event(), set()

    def read() -> None:
        while not stop.is_set():
            seen.add(found(repository, "a"))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(20):
        (shelf.folder / "a/2").rename(shelf.folder / ".away")
        repository.refresh()
        (shelf.folder / ".away").rename(shelf.folder / "a/2")
        repository.refresh()
    stop.set()
    reader.join()
    assert seen == {"a@1", "a@2"}
