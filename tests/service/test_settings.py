"""Settings: read once, from the environment and .env; a wrong one is named in a sentence."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from localmoments.artefact import NAME
from localmoments.cpus import available_cpus
from localmoments.errors import SettingsError
from service.settings import (
    GROUPS,
    PREFIX,
    Settings,
    describe_unknown_variables,
    list_groups,
    load,
    make_table,
)


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without .env, an environment without settings."""
    monkeypatch.chdir(tmp_path)
    for name in Settings.model_fields:
        monkeypatch.delenv(PREFIX + name.upper(), raising=False)
    monkeypatch.delenv("REDIS_URL", raising=False)
    return tmp_path


def test_by_default_the_service_is_local() -> None:
    got = load()
    assert (got.host, got.port, got.models) == ("127.0.0.1", 8000, Path("models"))
    assert got.default_model is None and got.compute_threads == available_cpus()


def test_the_environment_wins_over_the_file(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "LOCALMOMENTS_PORT=1\nLOCALMOMENTS_MAX_ROWS=7\nREDIS_URL=redis://other\n"
    (clean / ".env").write_text(lines)
    monkeypatch.setenv("LOCALMOMENTS_PORT", "2")
    monkeypatch.setenv("LOCALMOMENTS_THREADS", "")  # as compose passes what is not set
    assert (load().port, load().max_rows, load().threads) == (2, 7, 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "http"),
        ("PORT", "65536"),
        ("PORT", "tcp://10.0.0.1:80"),
        ("HOST", " "),
        ("THREADS", "-1"),
        ("MAX_BODY_BYTES", "0"),
        ("MAX_ROWS", "1.5"),
        ("MAX_POINTS", "0"),
        ("MAX_ANSWER_VALUES", "-1"),
        ("RELOAD_SECONDS", "nan"),
        ("RELOAD_SECONDS", "-1"),
        ("GRACE_SECONDS", "long"),
        ("LOG_LEVEL", "loud"),
        ("DEFAULT_MODEL", "../etc"),
        ("DEFAULT_MODEL", "a@b"),
        ("CORS_ORIGINS", "https://a.example/"),  # which no browser would send
    ],
)
def test_a_wrong_value_is_named_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(PREFIX + name, value)
    with pytest.raises(SettingsError) as refusal:
        load()
    sentence = str(refusal.value)
    assert sentence.startswith(f"{PREFIX}{name} is {value!r}, but ") and sentence.endswith(".")
    assert "\n" not in sentence


def test_several_wrong_values_are_all_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALMOMENTS_PORT", "a")
    monkeypatch.setenv("LOCALMOMENTS_LOG_LEVEL", "b")
    with pytest.raises(SettingsError, match=r"PORT is 'a'.*; .*LOG_LEVEL is 'b'"):
        load()


def test_origins_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALMOMENTS_CORS_ORIGINS", "https://a.example, http://localhost:3000,")
    assert load().cors_origins == ("https://a.example", "http://localhost:3000")
    monkeypatch.setenv("LOCALMOMENTS_CORS_ORIGINS", "*")
    assert load().cors_origins == ("*",)


def test_a_binary_env_file_is_named(clean: Path) -> None:
    (clean / ".env").write_bytes(b"LOCALMOMENTS_HOST=\xff\xfe")
    with pytest.raises(SettingsError, match=r"Cannot read \.env"):
        load()


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        load().port = 1  # type: ignore[misc]


def test_an_unknown_variable_is_reported_with_the_closest_setting(
    clean: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert describe_unknown_variables() == []
    monkeypatch.setenv("LOCALMOMENTS_PROT", "1")
    (clean / ".env").write_text("LOCALMOMENTS_QQQ=1\nOTHER=1\nLOCALMOMENTS_PORT=1\n")
    assert describe_unknown_variables() == [
        "LOCALMOMENTS_PROT is set, but there is no such setting. Did you mean LOCALMOMENTS_PORT?",
        "LOCALMOMENTS_QQQ is set, but there is no such setting.",
    ]


def test_the_table_lists_every_setting_with_its_meaning() -> None:
    rows = make_table().splitlines()[2:]
    assert len(rows) == len(Settings.model_fields)
    for row, (name, field) in zip(rows, Settings.model_fields.items(), strict=True):
        assert row.startswith(f"| `{PREFIX}{name.upper()}` | ") and field.description
        assert field.default in (None, ()) or f"`{field.default}`" in row


@pytest.mark.parametrize("name", ["mnist-dae", "a.b_c", "0", "x" * 64])
def test_every_models_name_can_be_the_default(name: str) -> None:
    assert NAME.fullmatch(name)
    for reference in (name, f"{name}@12"):
        assert Settings(_env_file=None, default_model=reference).default_model == reference


def test_a_flag_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALMOMENTS_PORT", "1")
    monkeypatch.setenv("REDIS_URL", "redis://other")
    settings = load({"port": "2", "redis_url": "redis://flag", "cors_origins": "*"})
    assert (settings.port, settings.cors_origins) == (2, ("*",))
    assert settings.redis_url and settings.redis_url.get_secret_value() == "redis://flag"


def test_a_wrong_flag_is_named_as_it_was_typed() -> None:
    with pytest.raises(SettingsError, match=r"^--log-level is 'loud', but .*\.$"):
        load({"log_level": "loud"})


def test_every_setting_is_in_a_group() -> None:
    names = [name for group in list_groups().values() for name in group]
    assert names == list(Settings.model_fields) and set(list_groups()) == set(GROUPS)
