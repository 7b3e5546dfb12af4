"""The model repository: all models below a folder, verified before use and refreshed while serving.

    models/<name>/<version>/manifest.json ...

A caller names a model as `name` for its newest version or `name@version`; without a name it gets
the default model. The models that are served at a moment form one `Catalogue`, which is replaced
as a whole: a caller sees the old models or the new ones, never a mixture. A caller's text is only
looked up in the catalogue and never becomes a path.
"""

import logging
import os
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnxruntime as ort

from localmoments.artefact import NAME
from localmoments.errors import ArtefactError, LocalMomentsError, NoModelError, UnknownModelError
from localmoments.model import Model
from localmoments.providers import Choice, choose_device

log = logging.getLogger(__name__)

PREFERRED_MODEL = "mnist-dae"  # the default model if no setting names one
REQUIRED_GRAPHS = ("reconstruct", "moments")
VERSION = re.compile(r"0|[1-9][0-9]{0,8}")

FolderState = tuple[tuple[str, int, int], ...]  # name, mtime and size of every file


@dataclass(frozen=True)
class Refusal:
    """A model that is not served, and the reason."""

    model: str  # a name, or name@version
    reason: str


@dataclass(frozen=True)
class Catalogue:
    """The models that are served at one moment."""

    models: Mapping[str, Mapping[str, Model]] = field(
        default_factory=dict
    )  # by name and version, newest first
    refused: tuple[Refusal, ...] = ()
    default: str | None = None  # a name, or name@version

    def newest(self) -> list[Model]:
        """Return the newest version of every model, in order of names."""
        return [next(iter(versions.values())) for versions in self.models.values()]

    def find(self, reference: str | None = None) -> Model:
        """Find a model by name or name@version; without a reference, the default model.

        Raises:
            UnknownModelError: there is no such model or version.
            NoModelError: there is no model at all.
        """
        self.require_any()
        reference = self.default if reference is None else reference
        name, _, version = (reference or "").partition("@")
        versions = self.models.get(name, {})
        model = versions.get(version) if version else next(iter(versions.values()), None)
        if model is None or reference == f"{name}@":
            raise self._make_unknown_error(str(reference), versions)
        return model

    def find_default(self) -> str | None:
        """Return name@version of the default model; None if there is no such model."""
        try:
            return self.find().manifest.reference
        except (NoModelError, UnknownModelError):
            return None

    def require_any(self) -> None:
        """Raise NoModelError, with the reason, if there is nothing to serve."""
        if not self.models:
            reasons = [f"{r.model} was refused, because {r.reason}" for r in self.refused]
            reason = reasons[0] if reasons else "the models folder is empty or does not exist."
            raise NoModelError(f"No model is usable: {reason}")

    def _make_unknown_error(
        self, reference: str, versions: Mapping[str, Model]
    ) -> UnknownModelError:
        available = [m.manifest.reference for m in versions.values()] or list(self.models)
        shown = reference if len(reference) <= 100 else f"{reference[:100]}…"
        return UnknownModelError(f"There is no model {shown!r}; there are {', '.join(available)}.")


class ModelRepository:
    """A folder of models and its current catalogue.

    Args:
        folder: the models folder.
        default: name or name@version of the default model.
        threads: of one graph call; 0 for the CPUs that this process may use.
        provider: where graphs run.
    """

    def __init__(
        self,
        folder: Path,
        *,
        default: str | None = None,
        threads: int = 0,
        provider: Choice = "cpu",
    ) -> None:
        self.catalogue = Catalogue()
        self._folder = folder
        self._default = default
        self._threads = threads
        self._device = choose_device(provider, ort.get_available_providers())
        self._entries: dict[Path, tuple[FolderState, Model | Refusal]] = {}  # by version folder
        self._refreshing = threading.Lock()

    def refresh(self) -> None:
        """Open new and changed models, keep the others, and replace the catalogue if it differs."""
        with self._refreshing:
            misnamed, folders = _find_versions(self._folder)
            self._entries = {folder: self._read(folder) for folder in folders}
            names = sorted({folder.parent.name for folder in folders})
            models = {name: self._find_usable(name) for name in names}
            models = {name: versions for name, versions in models.items() if versions}
            bad = tuple(entry for _, entry in self._entries.values() if isinstance(entry, Refusal))
            before = self.catalogue
            after = Catalogue(models, (*misnamed, *bad), self._choose_default(models))
            if after != before:  # what is cached by catalogue, such as /openapi.json, stays valid
                self.catalogue = after
        _log_changes(before, after)

    def find(self, reference: str | None = None) -> Model:
        """Find a model in the current catalogue; see `Catalogue.find`."""
        return self.catalogue.find(reference)

    def prepare(self) -> None:
        """Open the graphs of the default model, so that the first request does not wait."""
        try:
            self.find().prepare()
        except LocalMomentsError as error:  # requests will raise it, too
            log.warning("the default model is not ready: %s", error)

    def _read(self, folder: Path) -> tuple[FolderState, Model | Refusal]:
        """Return the old entry if no file has changed, else a new one."""
        state = _read_state(folder)
        old = self._entries.get(folder)
        if old is not None and old[0] == state:
            return old
        try:
            model = Model.open(folder, threads=self._threads, device=self._device)
            if model.manifest.reference != _make_reference(folder):
                raise ArtefactError(f"its manifest calls it {model.manifest.reference}.")
        except Exception as error:
            return state, self._make_refusal(folder, error)
        return state, model

    def _find_usable(self, name: str) -> dict[str, Model]:
        """Return the usable versions of a model, newest first."""
        folders = [folder for folder in self._entries if folder.parent.name == name]
        versions: dict[str, Model] = {}
        for folder in sorted(folders, key=lambda f: int(f.name), reverse=True):
            # Only the newest version must show that its graphs open; that takes time and memory.
            entry = self._entries[folder][1] if versions else self._check_graphs(folder)
            if isinstance(entry, Model):
                versions[folder.name] = entry
        return versions

    def _check_graphs(self, folder: Path) -> Model | Refusal:
        """Open the required graphs once; refuse the model if that fails."""
        state, entry = self._entries[folder]
        if isinstance(entry, Model):
            try:
                entry.check(*REQUIRED_GRAPHS)
            except Exception as error:
                entry = self._make_refusal(folder, error)
                self._entries[folder] = state, entry
        return entry

    def _make_refusal(self, folder: Path, error: Exception) -> Refusal:
        """Put an error into words. An unexpected error also refuses only this model."""
        is_expected = isinstance(error, ArtefactError)
        sentence = str(error) if is_expected else f"{type(error).__name__}: {error}."
        return Refusal(_make_reference(folder), sentence.replace(f"{self._folder}{os.sep}", ""))

    def _choose_default(self, models: Mapping[str, object]) -> str | None:
        if self._default is not None:
            return self._default
        return PREFERRED_MODEL if PREFERRED_MODEL in models else next(iter(models), None)


def _find_versions(folder: Path) -> tuple[list[Refusal], list[Path]]:
    """Return refusals of folders with invalid names, and the folders of all versions."""
    misnamed, versions = [], []
    for base in _list_folders(folder):
        if not NAME.fullmatch(base.name):
            misnamed.append(Refusal(base.name, f"{base.name!r} is not a model name."))
            continue
        for version in _list_folders(base):
            if VERSION.fullmatch(version.name):
                versions.append(version)
            else:
                reason = f"version {version.name!r} is not a whole number."
                misnamed.append(Refusal(_make_reference(version), reason))
    return misnamed, versions


def _list_folders(folder: Path) -> Iterator[Path]:
    """List folders by name, without hidden ones, which the trainer is still writing."""
    try:
        yield from (p for p in sorted(folder.iterdir()) if p.is_dir() and p.name[0] != ".")
    except OSError as error:
        log.debug("%s cannot be listed: %s", folder, error)


def _read_state(folder: Path) -> FolderState:
    """Return a value that changes when a file of the folder does."""
    try:
        stats = sorted((e.name, e.stat()) for e in os.scandir(folder))
    except OSError:
        return ()
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)


def _make_reference(folder: Path) -> str:
    return f"{folder.parent.name}@{folder.name}"


def _log_changes(before: Catalogue, after: Catalogue) -> None:
    old, new = (
        {m.manifest.reference: m for versions in c.models.values() for m in versions.values()}
        for c in (before, after)
    )
    for reference in sorted(new.keys() - old.keys()):
        log.info("%s is served, by %s", reference, new[reference].provider)
    for reference in sorted(old.keys() - new.keys()):
        log.info("%s is no longer served", reference)
    for refusal in after.refused:
        if refusal not in before.refused:
            log.warning("%s is refused: %s", refusal.model, refusal.reason)
