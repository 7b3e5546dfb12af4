"""The documentation is complete and true: settings, kernels, graphs, links and paths."""

import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from service import settings
from trainer.autoencoder import Architecture, AutoEncoder
from trainer.chain_kernels import KERNELS
from trainer.config import RECIPES, Recipe, make_recipe, read_recipe
from trainer.graphs import model_graphs

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
LINK = re.compile(r"\[[^\]]*\]\(([^)#]+)[^)]*\)")
FOLDERS = "localmoments|service|trainer|tests|benchmarks|deploy|docs"
PATH = re.compile(rf"`((?:{FOLDERS})/[\w./-]+)`")


def list_settings(cls: type[Any], prefix: str = "") -> set[str]:
    names: set[str] = set()
    hints = get_type_hints(cls)
    for f in fields(cls):
        kind = hints[f.name]
        if is_dataclass(kind) and isinstance(kind, type):
            names |= list_settings(kind, f"{f.name}.")
        else:
            names.add(prefix + f.name)
    return names


def test_the_training_guide_lists_exactly_the_settings_of_a_recipe() -> None:
    table = (ROOT / "docs/training.md").read_text(encoding="utf-8").split("## Recipes")[1]
    documented = set(re.findall(r"^\| `([a-z_.]+)` \|", table, re.M))
    assert documented == list_settings(Recipe)


def test_the_service_guide_contains_the_table_of_settings() -> None:
    assert settings.make_table() in (ROOT / "docs/service.md").read_text(encoding="utf-8")


def test_the_artefact_page_lists_every_graph() -> None:
    text = (ROOT / "docs/artefact.md").read_text(encoding="utf-8")
    for name in model_graphs(AutoEncoder(Architecture(2, (2,)))):
        assert f"| `{name}` |" in text


def test_every_kernel_is_documented() -> None:
    text = (ROOT / "docs/method.md").read_text(encoding="utf-8")
    for name in KERNELS:
        assert f"| `{name}` |" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_local_link_has_a_target(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_path_in_code_font_exists(page: Path) -> None:
    paths = PATH.findall(page.read_text(encoding="utf-8"))
    missing = {path for path in paths if not (ROOT / path).exists()}
    assert not missing


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda p: p.stem)
def test_every_shipped_recipe_is_valid_and_named_like_its_file(path: Path) -> None:
    assert make_recipe(read_recipe(path)).name == path.stem
