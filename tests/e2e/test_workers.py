"""Several processes behind one address are one service."""

import contextlib
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest

COUNT = 3


@pytest.fixture(scope="module")
def crew(start: Callable[..., Any], models: Path) -> Any:
    return start(models, workers=COUNT)


def workers(service: Any) -> list[psutil.Process]:
    children = psutil.Process(service.process.pid).children()
    alive = [child for child in children if child.status() != psutil.STATUS_ZOMBIE]
    return [child for child in alive if "worker" in child.cmdline()]


def asked(service: Any, method: str, path: str, **more: Any) -> httpx.Response:
    """On a connection of its own, which any worker may take."""
    with httpx.Client(base_url=service.http.base_url, timeout=30) as http:
        return http.request(method, path, **more)


def test_connections_are_dealt_out_among_them(crew: Any, wait_for: Callable[..., None]) -> None:
    def held() -> list[int]:
        return [len(worker.net_connections("tcp")) - 1 for worker in workers(crew)]

    with contextlib.ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(socket.create_connection(crew.address))
        wait_for(lambda: sum(held()) >= 60)
        assert len(held()) == COUNT and min(held()) >= 4


def test_any_of_them_goes_on_with_a_chain(crew: Any, service: Any) -> None:
    call = {"walkers": 2, "steps": 24, "thin": 1, "seed": 7}
    whole = asked(service, "POST", "/sample", json=call).json()["samples"]
    parts = [asked(crew, "POST", "/sample", json=call | {"steps": 2}).json()]
    for _ in range(11):
        more = {"chain": parts[-1]["chain"], "steps": 2, "thin": 1}
        parts.append(asked(crew, "POST", "/sample", json=more).json())
    np.testing.assert_array_equal(np.concatenate([part["samples"] for part in parts]), whole)


def test_each_tells_the_figures_of_all(crew: Any, x: Any) -> None:
    def counted() -> dict[str, float]:
        lines = asked(crew, "GET", "/metrics").text.splitlines()
        return {n: float(v) for n, _, v in (s.rpartition(" ") for s in lines if s[0] != "#")}

    answers = 'localmoments_requests_total{method="POST",route="/reconstruct",status="200"}'
    timed = 'localmoments_request_duration_seconds_count{method="POST",route="/reconstruct"}'
    before = counted().get(answers, 0)
    for _ in range(20):
        assert asked(crew, "POST", "/reconstruct", json={"x": x.tolist()}).is_success
    for _ in range(8):  # whichever it is that answers
        figures = counted()
        assert figures[answers] == figures[timed] == before + 20
        assert figures["localmoments_models"] == 1


def test_one_that_is_killed_is_replaced_and_its_chains_go_on(
    crew: Any, wait_for: Callable[..., None]
) -> None:
    chain = asked(crew, "POST", "/sample", json={"steps": 2}).json()["chain"]
    killed = workers(crew)[0]
    killed.kill()
    wait_for(lambda: killed.pid not in [w.pid for w in workers(crew)])
    wait_for(lambda: len(workers(crew)) == COUNT)
    for _ in range(12):
        answer = asked(crew, "POST", "/sample", json={"chain": chain, "steps": 1, "thin": 1})
        assert answer.is_success, answer.text
    assert [line["code"] for line in crew.log() if line["message"].startswith("a worker")] == [-9]


def test_a_port_is_not_shared_with_another_service(
    crew: Any, start: Callable[..., Any], models: Path
) -> None:
    second = start(models, workers=2, port=crew.address[1])
    assert second.process.wait(timeout=20) == 2
    assert "cannot be listened on: Address already in use" in second._log.read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_all_end_with_the_one_that_was_started(
    number: int, start: Callable[..., Any], models: Path, wait_for: Callable[..., None]
) -> None:
    service = start(models, workers=2, drain_seconds=0)
    every = psutil.Process(service.process.pid).children(recursive=True)
    assert len(every) >= 4, "two workers, a shell and a Valkey"
    code, _ = service.end(number)
    assert code == (-9 if number == signal.SIGKILL else 0)
    wait_for(lambda: not [one for one in every if one.is_running() and one.status() != "zombie"])


def test_while_they_drain_nobody_waits_in_vain(start: Callable[..., Any], models: Path) -> None:
    """A connection is answered as long as there is one who answers, and refused from then on."""
    service = start(models, workers=2, drain_seconds=1)
    service.process.terminate()
    while service.process.poll() is None:
        try:
            assert asked(service, "GET", "/readyz").status_code in (200, 503)
        except httpx.TimeoutException:
            raise
        except httpx.TransportError:  # refused, or met at the very end
            continue


def test_one_that_cannot_start_ends_all(start: Callable[..., Any], models: Path) -> None:
    """Neither half a service nor an endless row of attempts."""
    service = start(models, workers=2, provider="cuda")
    assert service.process.wait(timeout=30) != 0 and service.announcement == ""
