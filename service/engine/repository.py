"""All models below a folder: verified before use, and looked for again while the service runs.

    models/<name>/<version>/manifest.json ...

A caller says `name` for the newest version, `name@version` for that one, or nothing for the
default model. What is served at a moment is one `Catalogue`, replaced whole, so a caller sees the
old models or the new ones and never a mixture. A caller's word is only ever looked up in it and
never becomes a path.
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

FAVOURITE = "mnist-dae"  # the default model where no setting names one
NEEDED = ("reconstruct", "moments")  # graphs that every model must have and that must open
VERSION = re.compile(r"0|[1-9][0-9]{0,8}")

Fingerprint = tuple[tuple[str, int, int], ...]  # name, time of change and size of every file


@dataclass(frozen=True)
class Refusal:
    """A model that is not served, and why."""

    model: str  # a name, or name@version
    reason: str


@dataclass(frozen=True)
class Catalogue:
    """What is served at one moment."""

    models: Mapping[str, Mapping[str, Model]] = field(default_factory=dict)  # newest first
    refused: tuple[Refusal, ...] = ()
    default: str | None = None  # a name, or name@version

    def newest(self) -> list[Model]:
        """The newest version of every model, by name."""
        return [next(iter(versions.values())) for versions in self.models.values()]

    def find(self, reference: str | None = None) -> Model:
        """The model of this name or name@version, or the default model."""
        self.require_any()
        wanted = self.default if reference is None else reference
        name, _, version = (wanted or "").partition("@")
        versions = self.models.get(name, {})
        model = versions.get(version) if version else next(iter(versions.values()), None)
        if model is None or wanted == f"{name}@":
            raise UnknownModelError(self._not_found(str(wanted), versions))
        return model

    def require_any(self) -> None:
        """Raise where there is nothing to serve, and say why."""
        if not self.models:
            reasons = [f"{r.model} was refused, because {r.reason}" for r in self.refused]
            why = reasons[0] if reasons else "the models folder is empty or not there."
            raise NoModelError(f"No model is usable: {why}")

    def _not_found(self, wanted: str, versions: Mapping[str, Model]) -> str:
        there = [m.manifest.reference for m in versions.values()] or list(self.models)
        shown = wanted if len(wanted) <= 100 else f"{wanted[:100]}…"
        return f"There is no model {shown!r}; there are {', '.join(there)}."


class ModelRepository:
    """The folder and its current catalogue; `refresh` looks again."""

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
        self._seen: dict[Path, tuple[Fingerprint, Model | Refusal]] = {}
        self._refreshing = threading.Lock()

    def refresh(self) -> None:
        """Read what is new or changed, keep what is open, and swap the catalogue in one step."""
        with self._refreshing:
            misnamed, folders = _sorted_out(self._folder)
            self._seen = {folder: self._look_at(folder) for folder in folders}
            models = {name: self._usable(name) for name in sorted({f.parent.name for f in folders})}
            models = {name: versions for name, versions in models.items() if versions}
            bad = tuple(entry for _, entry in self._seen.values() if isinstance(entry, Refusal))
            before = self.catalogue
            self.catalogue = Catalogue(models, (*misnamed, *bad), self._chosen(models))
        _tell(before, self.catalogue)

    def find(self, reference: str | None = None) -> Model:
        return self.catalogue.find(reference)

    def prepare(self) -> None:
        """The default model, which is asked first."""
        try:
            self.find().prepare()
        except LocalMomentsError as error:  # requests will be told so as well
            log.warning("the default model is not ready: %s", error)

    def _look_at(self, folder: Path) -> tuple[Fingerprint, Model | Refusal]:
        """The entry from the last time if the files are untouched, else a new one."""
        fingerprint = _fingerprint(folder)
        known = self._seen.get(folder)
        if known is not None and known[0] == fingerprint:
            return known
        try:
            model = Model.open(folder, threads=self._threads, device=self._device)
            if model.manifest.reference != _reference(folder):
                raise ArtefactError(f"its manifest calls it {model.manifest.reference}.")
        except Exception as error:
            return fingerprint, self._refusal(folder, error)
        return fingerprint, model

    def _usable(self, name: str) -> dict[str, Model]:
        """Versions, newest first; the newest is one whose graphs open."""
        folders = [folder for folder in self._seen if folder.parent.name == name]
        versions: dict[str, Model] = {}
        for folder in sorted(folders, key=lambda f: int(f.name), reverse=True):
            entry = self._seen[folder][1] if versions else self._opened(folder)
            if isinstance(entry, Model):
                versions[folder.name] = entry
        return versions

    def _opened(self, folder: Path) -> Model | Refusal:
        fingerprint, entry = self._seen[folder]
        if isinstance(entry, Model):
            try:
                entry.check(*NEEDED)
            except Exception as error:
                entry = self._refusal(folder, error)
                self._seen[folder] = fingerprint, entry
        return entry

    def _refusal(self, folder: Path, error: Exception) -> Refusal:
        """In words; a fault that nobody foresaw also stops this model only."""
        known = isinstance(error, ArtefactError)
        sentence = str(error) if known else f"{type(error).__name__}: {error}."
        return Refusal(_reference(folder), sentence.replace(f"{self._folder}{os.sep}", ""))

    def _chosen(self, models: Mapping[str, object]) -> str | None:
        if self._default is not None:
            return self._default
        return FAVOURITE if FAVOURITE in models else next(iter(models), None)


def _sorted_out(folder: Path) -> tuple[list[Refusal], list[Path]]:
    """Folders that may not be called so, and those of all versions."""
    misnamed, versions = [], []
    for base in _folders(folder):
        if not NAME.fullmatch(base.name):
            misnamed.append(Refusal(base.name, f"{base.name!r} is not a model name."))
            continue
        for version in _folders(base):
            if VERSION.fullmatch(version.name):
                versions.append(version)
            else:
                said = f"version {version.name!r} is not a whole number."
                misnamed.append(Refusal(_reference(version), said))
    return misnamed, versions


def _folders(folder: Path) -> Iterator[Path]:
    """Folders in a folder, by name; those with a dot are another program's work in progress."""
    try:
        yield from (p for p in sorted(folder.iterdir()) if p.is_dir() and p.name[0] != ".")
    except OSError as error:
        log.debug("%s cannot be listed: %s", folder, error)


def _fingerprint(folder: Path) -> Fingerprint:
    """What changes when anyone touches the folder."""
    try:
        stats = sorted((e.name, e.stat()) for e in os.scandir(folder))
    except OSError:
        return ()
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)


def _reference(folder: Path) -> str:
    return f"{folder.parent.name}@{folder.name}"


def _tell(before: Catalogue, after: Catalogue) -> None:
    """What changed, in the log."""
    old, new = ({m.manifest.reference: m for v in c.models.values() for m in v.values()}
                for c in (before, after))  # fmt: skip
    for reference in sorted(new.keys() - old.keys()):
        log.info("%s is served, by %s", reference, new[reference].provider)
    for reference in sorted(old.keys() - new.keys()):
        log.info("%s is no longer served", reference)
    for refusal in after.refused:
        if refusal not in before.refused:
            log.warning("%s is refused: %s", refusal.model, refusal.reason)
