"""The keys file: parsed, or refused with one sentence that never contains a secret."""

import hashlib
import tomllib
from pathlib import Path

import pytest

from localmoments.errors import SettingsError
from service.http.keys import SCOPES, new_key, read_keys

A, B = "a" * 64, "B" * 64


def entry(name: str = "alice", sha256: str = A, scopes: str = '["read"]', more: str = "") -> str:
    return f'[[key]]\nname = "{name}"\nsha256 = "{sha256}"\nscopes = {scopes}\n{more}\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.toml"


def test_a_keys_file_is_read(file: Path) -> None:
    limits = "requests_per_minute = 600\nrow_steps_per_minute = 1_000_000"
    file.write_text(entry(more=limits) + entry("b.2", B, '["sample", "admin"]'))
    alice, other = read_keys(file)
    assert (alice.name, alice.digest, alice.scopes) == ("alice", bytes.fromhex(A), ["read"])
    assert (alice.requests_per_minute, alice.row_steps_per_minute) == (600, 1_000_000)
    assert (other.name, other.digest, other.scopes) == (
        "b.2", bytes.fromhex(B), ["sample", "admin"])  # fmt: skip
    assert other.requests_per_minute is other.row_steps_per_minute is None


def test_without_a_file_there_are_no_keys() -> None:
    assert read_keys(None) == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "contains no key"),
        ("# nothing", "contains no key"),
        ("[[key", "is not valid TOML"),
        ("\udcff", "is not valid TOML"),
        ('[key]\nname = "a"', "key: input should be a valid list"),
        ("[[keys]]\n", "keys: there is no such field"),
        ('[[key]]\nname = "a"', "key 1: sha256: field required; key 1: scopes: field required"),
        (entry("Alice"), "key 1: name: string should match"),
        (entry("a b"), "key 1: name: string should match"),
        (entry(""), "key 1: name: string should match"),
        (entry() + entry("b", "b" * 63), "key 2: sha256: string should match"),
        (entry(sha256="g" * 64), "key 1: sha256: string should match"),
        (entry(scopes="[]"), "key 1: scopes: list should have at least 1 item"),
        (entry(scopes='"read"'), "key 1: scopes: input should be a valid list"),
        (entry(scopes='["read", "write"]'), "scopes.1: input should be 'read', 'sample' or 'admin"),
        (entry(more="requests_per_hour = 1"), "key 1: requests_per_hour: there is no such field"),
        (entry(more="requests_per_minute = 0"), "requests_per_minute: input should be greater"),
        (entry(more="row_steps_per_minute = -1"), "row_steps_per_minute: input should be greater"),
        (entry(more='requests_per_minute = "9"'), "input should be a valid integer"),
        (entry(more="requests_per_minute = 1.5"), "input should be a valid integer"),
        (entry() + entry(sha256=B), "has two keys named 'alice'"),
        (entry() + entry("bob", A.upper()), "has the same sha256 for 'alice' and 'bob'"),
    ],
)
def test_a_fault_is_one_sentence(file: Path, text: str, words: str) -> None:
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(SettingsError) as refusal:
        read_keys(file)
    sentence = str(refusal.value)
    assert sentence.startswith(str(file)) and sentence.endswith(".") and "\n" not in sentence
    assert words in sentence


def test_a_missing_file_is_named(file: Path) -> None:
    for path in (file, file.parent):
        with pytest.raises(SettingsError, match=r"cannot be read: .+\.$"):
            read_keys(path)


def test_a_secret_in_place_of_its_digest_is_not_printed(file: Path) -> None:
    file.write_text(entry(sha256="my-secret"))
    with pytest.raises(SettingsError) as refusal:
        read_keys(file)
    assert "my-secret" not in str(refusal.value)


def test_the_entry_of_a_new_key_has_the_digest_of_its_secret(file: Path) -> None:
    secret, text = new_key("alice", SCOPES)
    other, more = new_key("bob", ["read"])
    file.write_text(text + more)
    alice, bob = read_keys(file)
    assert alice.digest == hashlib.sha256(secret.encode()).digest() != bob.digest
    assert (alice.scopes, bob.scopes) == (["read", "sample", "admin"], ["read"])
    assert secret not in text and secret != other and len(secret) == 43


@pytest.mark.parametrize("name", ["", "Alice", 'a"', "a\n", "a b", "x" * 65])
def test_a_malformed_name_of_a_key_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match="may contain a-z"):
        new_key(name, ["read"])


def test_the_example_in_the_documentation_is_a_valid_keys_file(file: Path) -> None:
    page = Path(__file__).parents[3] / "docs/keys.md"
    file.write_text(page.read_text(encoding="utf-8").split("```toml\n")[1].split("```")[0])
    names = [key["name"] for key in tomllib.loads(file.read_text())["key"]]
    assert [key.name for key in read_keys(file)] == names and len(names) > 1
