"""API keys for an operator: the command, the file, the start, and the log."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx


def test_a_wrong_keys_file_is_one_sentence(refused_start: Any, tmp_path: Path) -> None:
    setting = {"LOCALMOMENTS_KEYS_FILE": "keys.toml", "LOCALMOMENTS_PORT": "0"}
    said = "error: keys.toml cannot be read: No such file or directory."
    assert refused_start(tmp_path, **setting) == said
    (tmp_path / "keys.toml").write_text('[[key]]\nname = "a"\nscopes = ["all"]\n')
    assert "key 1: sha256: field required; key 1: scopes" in refused_start(tmp_path, **setting)
    assert list(tmp_path.iterdir()) == [tmp_path / "keys.toml"]  # nothing was started


def test_a_new_key_works_once_it_is_in_the_file(start: Any, models: Path, tmp_path: Path) -> None:
    secrets = {}
    with (tmp_path / "keys.toml").open("w") as file:
        for words in (["alice"], ["op", "--scopes", "admin"]):
            command = [sys.executable, "-m", "service", "key", *words]
            done = subprocess.run(command, stdout=file, stderr=subprocess.PIPE, text=True)
            assert done.returncode == 0
            secrets[words[0]] = done.stderr.split()[-1]
    service = start(models, keys_file=tmp_path / "keys.toml", host="0.0.0.0")
    url = f"http://127.0.0.1:{service.address[1]}"
    alice = {"authorization": f"Bearer {secrets['alice']}"}
    assert httpx.get(f"{url}/models", headers=alice).status_code == 200
    assert httpx.get(f"{url}/metrics", headers=alice).status_code == 403
    assert httpx.get(f"{url}/metrics", headers={"x-api-key": secrets["op"]}).status_code == 200
    assert httpx.get(f"{url}/models").status_code == 401
    code, log = service.end()
    assert code == 0 and not any(secret in log for secret in secrets.values())
    asked = [json.loads(line) for line in log.splitlines()]
    assert [a["caller"] for a in asked if a.get("path") == "/models"] == ["alice", ""]
    assert not any("anyone" in a["message"] for a in asked)


def test_a_bad_name_of_a_key_is_one_sentence(refused_start: Any, tmp_path: Path) -> None:
    assert refused_start(tmp_path, "key", "Alice").endswith("got 'Alice'.")


def test_listening_to_other_machines_without_keys_is_logged_once(
    start: Any, models: Path, service: Any
) -> None:
    opened = start(models, host="0.0.0.0")
    [line] = [line for line in opened.log() if line["level"] == "warning"]
    assert f"anyone who can reach http://0.0.0.0:{opened.address[1]}" in line["message"]
    assert "LOCALMOMENTS_KEYS_FILE" in line["message"]
    assert not any(line["level"] == "warning" for line in service.log())
