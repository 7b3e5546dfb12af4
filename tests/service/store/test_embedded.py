"""The embedded Valkey stops with its service, however that ends, and keeps what was committed."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis

from localmoments.errors import SettingsError, StoreError
from service.store.chains import ChainStore, Snapshot
from service.store.embedded import EmbeddedValkey

SERVICE = """
import signal, sys
from pathlib import Path
from service.store.embedded import EmbeddedValkey

signal.signal(signal.SIGINT, lambda *_: None)
server = EmbeddedValkey(Path(sys.argv[1]))
print(server.start(), flush=True)
sys.stdin.read()
server.stop()
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], EmbeddedValkey]]:
    """Make servers on one folder; stop them at the end."""
    servers: list[EmbeddedValkey] = []

    def make(folder: Path = tmp_path / "store") -> EmbeddedValkey:
        servers.append(EmbeddedValkey(folder))
        return servers[-1]

    yield make
    for server in servers:
        server.stop()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process with a server on the same folder, leader of its own group."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVICE, str(tmp_path / "store")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        yield process
        process.kill()


def read_first_line(service: subprocess.Popen[str]) -> str:
    assert service.stdout
    return service.stdout.readline().strip()


def find_process(url: str) -> psutil.Process:
    with redis.Redis.from_url(url) as client:
        return psutil.Process(client.info("server")["process_id"])


def has_ended(url: str, process: psutil.Process, seconds: float = 5) -> bool:
    """Tell whether the server and the folder of its socket disappear within `seconds`."""
    folder = Path(url.removeprefix("unix://")).parent
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not process.is_running() and not folder.exists():
            return True
        time.sleep(0.01)
    return False


def wait_until_flushed(url: str) -> None:
    """Wait until the append-only file has all commits; it may lag up to two seconds."""
    with redis.Redis.from_url(url) as client:
        while client.info("persistence")["aof_buffer_length"]:
            time.sleep(0.01)


def commit_steps(url: str, chain: str, steps: int = 1) -> None:
    async def check(store: ChainStore) -> None:
        lease = await store.create(chain, "me", b"plan", b"")
        assert lease
        for step in range(steps):
            await store.commit(lease, step, Snapshot(step + 1, bytes(1000)))

    with_store(url, check)


def read_step(url: str, chain: str) -> int:
    async def check(store: ChainStore) -> int:
        return (await store.read(chain, "me")).head.step

    return int(with_store(url, check))


def with_store(url: str, check: Callable[[ChainStore], Any]) -> Any:
    async def main() -> Any:
        store = ChainStore(url, chain_seconds=60, tombstone_seconds=60, lease_seconds=5, timeout=5)
        try:
            return await check(store)
        finally:
            await store.close()

    return asyncio.run(main())


def test_it_starts_fast_with_private_files_and_stops_when_told_to(
    start: Any, tmp_path: Path
) -> None:
    server = start()
    started = time.monotonic()
    url = server.start()
    assert time.monotonic() - started < 3  # 0.1 s on an idle machine
    process = find_process(url)
    sockets = Path(url.removeprefix("unix://")).parent
    assert sockets.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o700
    assert not process.net_connections("inet")
    server.stop()
    assert has_ended(url, process, seconds=0.5)
    server.stop()


def test_commits_survive_a_restart(start: Any) -> None:
    server = start()
    commit_steps(server.start(), "kept", steps=5)
    server.stop()
    assert read_step(server.start(), "kept") == 5


def test_commits_survive_a_kill_of_the_server(start: Any) -> None:
    server = start()
    url = server.start()
    commit_steps(url, "kept", steps=5)
    wait_until_flushed(url)
    process = find_process(url)
    process.kill()
    with pytest.raises(StoreError):
        with_store(url, lambda store: store.ping())
    assert has_ended(url, process)
    server.stop()
    assert read_step(server.start(), "kept") == 5


def test_a_truncated_file_loads_up_to_where_it_ends(start: Any, tmp_path: Path) -> None:
    server = start()
    commit_steps(server.start(), "cut", steps=5)
    server.stop()
    [file] = (tmp_path / "store/appendonlydir").glob("*.incr.aof")
    os.truncate(file, file.stat().st_size - 500)
    assert read_step(server.start(), "cut") == 4


def test_a_broken_file_is_reported_in_one_sentence(start: Any, tmp_path: Path) -> None:
    server = start()
    commit_steps(server.start(), "broken", steps=5)
    server.stop()
    [file] = (tmp_path / "store/appendonlydir").glob("*.incr.aof")
    file.write_bytes(b"nonsense" + file.read_bytes())
    with pytest.raises(SettingsError, match=r"has stopped: .*Bad file format") as caught:
        server.start()
    assert "\n" not in str(caught.value)


def test_it_stops_when_its_service_is_killed(service: Any, start: Any) -> None:
    url = read_first_line(service)
    commit_steps(url, "kept")
    process = find_process(url)
    service.kill()
    server = start()
    assert read_step(server.start(), "kept") == 1  # waits until the other server has stopped
    assert has_ended(url, process, seconds=0.5)


def test_ctrl_c_in_the_terminal_does_not_reach_it(service: Any) -> None:
    url = read_first_line(service)
    os.killpg(service.pid, signal.SIGINT)
    time.sleep(0.1)
    commit_steps(url, "walking")
    process = find_process(url)
    service.stdin.close()
    service.wait(5)
    assert has_ended(url, process, seconds=0.5)


def test_terminating_its_whole_session_leaves_nothing_behind(start: Any) -> None:
    server = start()
    url = server.start()
    process = find_process(url)
    os.killpg(os.getpgid(process.pid), signal.SIGTERM)
    assert has_ended(url, process)


def test_two_services_cannot_use_the_same_folder(service: Any, start: Any, tmp_path: Path) -> None:
    url = read_first_line(service)
    started = time.monotonic()
    with pytest.raises(SettingsError, match="Another service uses the folder") as caught:
        start().start(timeout=0.3)
    assert 0.25 < time.monotonic() - started < 5
    assert str(tmp_path / "store") in str(caught.value)
    assert "LOCALMOMENTS_STORE_FOLDER" in str(caught.value)
    assert "REDIS_URL" in str(caught.value)
    commit_steps(url, "undisturbed")


def test_the_error_for_an_unusable_folder_names_it(start: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file/below", Path("/proc/none")):
        with pytest.raises(SettingsError, match=f"The folder {folder} cannot be used"):
            start(folder).start()


def test_a_folder_name_may_hold_spaces_and_quotes(start: Any, tmp_path: Path) -> None:
    folder = tmp_path / 'a "quoted" \\ name with $spaces; é' / ("long" * 40)
    server = start(folder)
    commit_steps(server.start(), "kept")
    server.stop()
    assert read_step(server.start(), "kept") == 1
    assert (folder / "appendonlydir").is_dir()


def test_a_long_temporary_folder_is_not_used_for_the_socket(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("long" * 30)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    commit_steps(start().start(), "short")
    assert not list(long.iterdir())


def test_a_platform_without_a_binary_is_reported(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "vax")
    with pytest.raises(SettingsError, match="no embedded Valkey for this platform"):
        start().start()
