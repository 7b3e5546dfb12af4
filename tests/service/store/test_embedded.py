"""The embedded Valkey ends with its service, whatever that dies of, and keeps what it was given."""

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
    """Makes servers on one folder; those still there at the end are stopped."""
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


def first_line(service: subprocess.Popen[str]) -> str:
    assert service.stdout
    return service.stdout.readline().strip()


def process_of(url: str) -> psutil.Process:
    with redis.Redis.from_url(url) as client:
        return psutil.Process(client.info("server")["process_id"])


def ended(url: str, process: psutil.Process, seconds: float = 5) -> bool:
    """Neither the server nor the folder of its socket is left."""
    folder = Path(url.removeprefix("unix://")).parent
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not process.is_running() and not folder.exists():
            return True
        time.sleep(0.01)
    return False


def written(url: str) -> None:
    """While the disk is flushed the file may lag behind the answers, for two seconds at most."""
    with redis.Redis.from_url(url) as client:
        while client.info("persistence")["aof_buffer_length"]:
            time.sleep(0.01)


def put(url: str, chain: str, steps: int = 1) -> None:
    async def law(store: ChainStore) -> None:
        lease = await store.create(chain, "me", b"plan", b"")
        assert lease
        for step in range(steps):
            await store.commit(lease, step, Snapshot(step + 1, bytes(1000)))

    with_store(url, law)


def step_of(url: str, chain: str) -> int:
    async def law(store: ChainStore) -> int:
        return (await store.read(chain, "me")).head.step

    return int(with_store(url, law))


def with_store(url: str, law: Callable[[ChainStore], Any]) -> Any:
    async def main() -> Any:
        store = ChainStore(url, chain_seconds=60, tombstone_seconds=60, lease_seconds=5, timeout=5)
        try:
            return await law(store)
        finally:
            await store.close()

    return asyncio.run(main())


def test_it_starts_at_once_privately_and_ends_when_stopped(start: Any, tmp_path: Path) -> None:
    server = start()
    started = time.monotonic()
    url = server.start()
    assert time.monotonic() - started < 3  # 0.1 s on a machine with nothing else to do
    process = process_of(url)
    sockets = Path(url.removeprefix("unix://")).parent
    assert sockets.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o700
    assert not process.net_connections("inet")
    server.stop()
    assert ended(url, process, seconds=0.5)
    server.stop()


def test_what_was_committed_is_there_after_a_restart(start: Any) -> None:
    server = start()
    put(server.start(), "kept", steps=5)
    server.stop()
    assert step_of(server.start(), "kept") == 5


def test_a_killed_server_is_an_error_and_its_file_is_good(start: Any) -> None:
    server = start()
    url = server.start()
    put(url, "kept", steps=5)
    written(url)
    process = process_of(url)
    process.kill()
    with pytest.raises(StoreError):
        with_store(url, lambda store: store.ping())
    assert ended(url, process)
    server.stop()
    assert step_of(server.start(), "kept") == 5


def test_a_file_cut_short_by_a_crash_loads_up_to_there(start: Any, tmp_path: Path) -> None:
    server = start()
    put(server.start(), "cut", steps=5)
    server.stop()
    [file] = (tmp_path / "store/appendonlydir").glob("*.incr.aof")
    os.truncate(file, file.stat().st_size - 500)
    assert step_of(server.start(), "cut") == 4


def test_a_broken_file_is_told_in_one_sentence(start: Any, tmp_path: Path) -> None:
    server = start()
    put(server.start(), "broken", steps=5)
    server.stop()
    [file] = (tmp_path / "store/appendonlydir").glob("*.incr.aof")
    file.write_bytes(b"nonsense" + file.read_bytes())
    with pytest.raises(SettingsError, match=r"has stopped: .*Bad file format") as caught:
        server.start()
    assert "\n" not in str(caught.value)


def test_it_ends_when_its_service_is_killed(service: Any, start: Any) -> None:
    url = first_line(service)
    put(url, "kept")
    process = process_of(url)
    service.kill()
    server = start()
    assert step_of(server.start(), "kept") == 1  # waits for the other one's end
    assert ended(url, process, seconds=0.5)


def test_an_interrupt_from_the_terminal_does_not_reach_it(service: Any) -> None:
    url = first_line(service)
    os.killpg(service.pid, signal.SIGINT)
    time.sleep(0.1)
    put(url, "walking")
    process = process_of(url)
    service.stdin.close()
    service.wait(5)
    assert ended(url, process, seconds=0.5)


def test_a_termination_of_its_whole_session_leaves_nothing(start: Any) -> None:
    server = start()
    url = server.start()
    process = process_of(url)
    os.killpg(os.getpgid(process.pid), signal.SIGTERM)
    assert ended(url, process)


def test_two_services_do_not_share_a_folder(service: Any, start: Any, tmp_path: Path) -> None:
    url = first_line(service)
    started = time.monotonic()
    with pytest.raises(SettingsError, match="Another service uses the folder") as caught:
        start().start(timeout=0.3)
    assert 0.25 < time.monotonic() - started < 5
    assert str(tmp_path / "store") in str(caught.value)
    assert "LOCALMOMENTS_STORE_FOLDER" in str(caught.value)
    assert "REDIS_URL" in str(caught.value)
    put(url, "undisturbed")


def test_a_folder_that_cannot_be_used_is_named(start: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file/below", Path("/proc/none")):
        with pytest.raises(SettingsError, match=f"The folder {folder} cannot be used"):
            start(folder).start()


def test_a_folder_with_a_difficult_name_is_a_folder(start: Any, tmp_path: Path) -> None:
    folder = tmp_path / 'a "quoted" \\ name with $spaces; é' / ("long" * 40)
    server = start(folder)
    put(server.start(), "kept")
    server.stop()
    assert step_of(server.start(), "kept") == 1
    assert (folder / "appendonlydir").is_dir()


def test_a_long_temporary_folder_does_not_matter(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("long" * 30)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    put(start().start(), "short")
    assert not list(long.iterdir())


def test_a_platform_without_a_binary_is_told(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "vax")
    with pytest.raises(SettingsError, match="no embedded Valkey for this platform"):
        start().start()
