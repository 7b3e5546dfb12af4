"""The model repository: versions newest first, bad models refused alone, refresh while serving."""

import json
import logging
import os
import shutil
import threading
from pathlib import Path

import pytest

from localmoments.artefact import MANIFEST
from localmoments.errors import NoModelError, UnknownModelError
from service.engine.repository import PREFERRED_MODEL, ModelRepository


class ModelsFolder:
    """A models folder that holds copies of the tiny model under other names."""

    def __init__(self, path: Path, artefact: Path) -> None:
        self.path = path
        self._artefact = artefact

    def add(self, name: str, version: str = "1", **changes: object) -> Path:
        made = self.path / ".new-x"
        shutil.copytree(self._artefact, made)
        body = json.loads((made / MANIFEST).read_text()) | {"name": name, "version": version}
        (made / MANIFEST).write_text(json.dumps(body | changes))
        (self.path / name).mkdir(exist_ok=True)
        made.rename(self.path / name / version)
        return self.path / name / version

    def open(self, default: str | None = None) -> ModelRepository:
        repository = ModelRepository(self.path, default=default, threads=1)
        repository.refresh()
        return repository


@pytest.fixture
def folder(tiny_artefact: Path, tmp_path: Path) -> ModelsFolder:
    return ModelsFolder(tmp_path, tiny_artefact)


def find_reference(repository: ModelRepository, reference: str | None = None) -> str:
    return repository.find(reference).manifest.reference


def list_refusals(repository: ModelRepository) -> dict[str, str]:
    return {r.model: r.reason for r in repository.catalogue.refused}


def test_the_newest_version_has_the_highest_number(folder: ModelsFolder) -> None:
    for version in ("2", "10", "9"):
        folder.add("a", version)
    repository = folder.open()
    assert find_reference(repository) == find_reference(repository, "a") == "a@10"
    assert find_reference(repository, "a@9") == "a@9"
    assert list(repository.catalogue.models["a"]) == ["10", "9", "2"]


def test_the_default_model_is_the_named_one_or_the_preferred_one_or_the_first(
    folder: ModelsFolder,
) -> None:
    folder.add("b")
    folder.add("a")
    assert find_reference(folder.open()) == "a@1"
    folder.add(PREFERRED_MODEL)
    assert find_reference(folder.open()) == f"{PREFERRED_MODEL}@1"
    assert find_reference(folder.open("b")) == find_reference(folder.open("b@1")) == "b@1"
    with pytest.raises(UnknownModelError, match=f"no model 'c'; there are a, b, {PREFERRED_MODEL}"):
        folder.open("c").find()


@pytest.mark.parametrize(
    "reference",
    ["", "@", "@1", "a@", "a@2", "a@01", "a@1@1", "A", "../a", "a/1", "/etc", "a\0", "a" * 5000],
)
def test_a_reference_is_never_used_as_a_path(folder: ModelsFolder, reference: str) -> None:
    folder.add("a")
    with pytest.raises(UnknownModelError, match=r"there are a") as refusal:
        folder.open().find(reference)
    assert len(str(refusal.value)) < 200


def test_an_empty_or_missing_folder_has_no_model(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        repository = ModelRepository(folder)
        repository.refresh()
        with pytest.raises(NoModelError, match="empty or does not exist"):
            repository.find()
        assert repository.catalogue.newest() == []


def test_a_broken_version_is_refused_and_the_one_before_is_served(folder: ModelsFolder) -> None:
    folder.add("a", "1")
    (folder.add("a", "2") / "weights.safetensors").write_bytes(b"")
    folder.add("b")
    repository = folder.open()
    assert find_reference(repository, "a") == "a@1" and find_reference(repository, "b") == "b@1"
    assert list_refusals(repository) == {
        "a@2": "a/2/weights.safetensors was altered: its sha256 is not the manifest's."
    }
    with pytest.raises(UnknownModelError, match=r"no model 'a@2'; there are a@1\."):
        repository.find("a@2")


def test_a_newest_version_whose_graphs_do_not_open_is_refused(folder: ModelsFolder) -> None:
    folder.add("a", "1")
    graphs = json.loads((folder.path / "a/1" / MANIFEST).read_text())["graphs"]
    graphs["moments"]["inputs"]["x"][1] = 9
    folder.add("a", "2", graphs=graphs)
    folder.add("b", "1", graphs={k: v for k, v in graphs.items() if k != "moments"})
    repository = folder.open()
    assert find_reference(repository, "a") == "a@1"
    assert "moments.onnx takes or gives" in list_refusals(repository)["a@2"]
    assert list_refusals(repository)["b@1"] == "b/1 has no graph named 'moments'."


def test_folders_with_wrong_names_are_refused(folder: ModelsFolder) -> None:
    (folder.path / "a").mkdir()
    folder.add("b", "1").rename(folder.path / "a/3")
    folder.add("good")
    for odd in ("Bad Name/1", "a/v2", "a/01", "a/7", ".hidden/1", "a/.new-1"):
        (folder.path / odd).mkdir(parents=True)
    (folder.path / "file").write_text("")
    repository = folder.open()
    assert [m.manifest.reference for m in repository.catalogue.newest()] == ["good@1"]
    reasons = list_refusals(repository)
    assert set(reasons) == {"Bad Name", "a@v2", "a@01", "a@7", "a@3"}
    assert reasons["a@3"] == "its manifest calls it b@1." and "no manifest" in reasons["a@7"]


def test_a_manifest_that_cannot_be_parsed_refuses_only_its_model(folder: ModelsFolder) -> None:
    folder.add("a")
    (folder.add("b") / MANIFEST).write_text("[" * 100_000)  # too deep for the parser
    repository = folder.open()
    assert (
        find_reference(repository, "a") == "a@1" and "recursion" in list_refusals(repository)["b@1"]
    )


def test_a_new_version_is_picked_up_and_the_old_one_stays_open(folder: ModelsFolder) -> None:
    folder.add("a", "1")
    repository = folder.open()
    before, old = repository.catalogue, repository.find("a")
    folder.add("a", "2")
    assert find_reference(repository, "a") == "a@1"
    repository.refresh()
    assert find_reference(repository, "a") == "a@2" and repository.find("a@1") is old
    assert before.find("a") is old  # an old catalogue keeps the old models


def test_unchanged_models_are_not_opened_again(folder: ModelsFolder) -> None:
    folder.add("a")
    (folder.add("b") / "card.md").write_text("altered")
    repository = folder.open()
    model, [refusal] = repository.find("a"), repository.catalogue.refused
    repository.refresh()
    assert repository.find("a") is model and repository.catalogue.refused[0] is refusal


def test_a_version_that_breaks_or_disappears_is_no_longer_served(folder: ModelsFolder) -> None:
    broken, gone = folder.add("a", "2"), folder.add("b", "2")
    folder.add("a", "1")
    repository = folder.open()
    sound = (broken / "card.md").read_text()
    (broken / "card.md").write_text("altered")
    shutil.rmtree(gone)
    repository.refresh()
    assert find_reference(repository, "a") == "a@1" and set(list_refusals(repository)) == {"a@2"}
    with pytest.raises(UnknownModelError, match="there are a"):
        repository.find("b")
    (broken / "card.md").write_text(sound)
    os.utime(broken / "card.md", (1, 1))
    repository.refresh()
    assert find_reference(repository, "a") == "a@2" and list_refusals(repository) == {}


def test_changes_are_logged_once(folder: ModelsFolder, caplog: pytest.LogCaptureFixture) -> None:
    folder.add("a")
    (folder.path / "b/1").mkdir(parents=True)
    with caplog.at_level(logging.INFO):
        repository = folder.open()
        repository.refresh()
        shutil.rmtree(folder.path / "a")
        repository.refresh()
    assert caplog.messages == [
        "a@1 is served, by CPUExecutionProvider", "b@1 is refused: b/1 has no manifest.json.",
        "a@1 is no longer served",
    ]  # fmt: skip


def test_readers_always_find_a_model_during_refreshes(folder: ModelsFolder) -> None:
    folder.add("a", "1")
    folder.add("a", "2")
    repository, stop, seen = folder.open(), threading.Event(), set()

    def read() -> None:
        while not stop.is_set():
            seen.add(find_reference(repository, "a"))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(20):
        (folder.path / "a/2").rename(folder.path / ".away")
        repository.refresh()
        (folder.path / ".away").rename(folder.path / "a/2")
        repository.refresh()
    stop.set()
    reader.join()
    assert seen == {"a@1", "a@2"}
