#!/usr/bin/env python3
"""Test a running deployment. Needs only Python.

    deploy/smoke.py http://127.0.0.1:8000
    deploy/smoke.py http://127.0.0.1:8000 http://127.0.0.1:8002 --stop 'docker stop -t 30 ...'

A second address is another replica on the same Redis, where chains are resumed. `--stop` stops the
first replica during a stream, which must end with an event to resume from. API_KEY is sent if set.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

SEED, THIN = 7, 10
LONG = 500_000  # steps; more than a replica takes before it is stopped


class Failure(Exception):
    """A check that failed."""


class Replica:
    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        self._parts = urlsplit(self.address)

    def open(self, method: str, path: str, body: Any = None, accept: str = "*/*") -> HTTPResponse:
        kind = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
        connection = kind(self._parts.netloc, timeout=60)
        headers = {"accept": accept, "content-type": "application/json"}
        if key := os.environ.get("API_KEY"):
            headers["x-api-key"] = key
        sent = None if body is None else json.dumps(body)
        connection.request(method, self._parts.path + path, sent, headers)
        return connection.getresponse()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.open(method, path, body)
        text = answer.read().decode()
        if answer.status not in (200, 204):
            raise Failure(f"{method} {self.address}{path} answers {answer.status}: {text[:300]}")
        return json.loads(text) if text.startswith(("{", "[")) else text

    def sample(self, **body: Any) -> Any:
        return self.ask("POST", "/sample", body)

    def wait(self, seconds: float) -> None:
        end, why = time.monotonic() + seconds, ""
        while time.monotonic() < end:
            try:
                self.ask("GET", "/readyz")
                return
            except (OSError, Failure) as error:
                why = str(error)
                time.sleep(0.02)
        raise Failure(f"{self.address} was not ready within {seconds:g} s: {why}")


def check(truth: bool, sentence: str) -> None:
    if not truth:
        raise Failure(f"Not so: {sentence}")
    print(f"ok: {sentence}", flush=True)


def check_models(replica: Replica) -> None:
    listed = replica.ask("GET", "/models")
    check(bool(listed["models"]) and not listed["refused"], "every model is served, none refused")
    for model in listed["models"]:
        row = [0.5] * model["input_dims"]
        asked = {"model": model["reference"], "x": [row, row]}
        answer = replica.ask("POST", "/reconstruct", asked)
        check(len(answer["reconstruction"]) == 2, f"{model['reference']} reconstructs")
        moments = replica.ask("POST", "/moments", asked | {"rank": 1})
        check(len(moments["tangents"]) == 2, f"{model['reference']} gives moments")


def check_chains(first: Replica, second: Replica) -> None:
    """A chain in two halves, each at another replica, is the chain in one piece."""
    whole = first.sample(steps=20, thin=THIN, seed=SEED)
    half = first.sample(steps=10, thin=THIN, seed=SEED)
    rest = second.sample(chain=half["chain"], steps=10)
    again = first.sample(chain=half["chain"], steps=10, from_step=10)
    check(rest["step"] == 20, "a chain goes on where it stands")
    check(rest["samples"][-1] == whole["samples"][-1], "in two calls it is what it is in one")
    check(again["samples"] == rest["samples"], "an answer that was lost comes again, the same")
    for chain in (whole["chain"], half["chain"]):
        second.ask("DELETE", f"/chains/{chain}")
    check(first.open("GET", f"/chains/{half['chain']}").status == 410, "an ended chain is gone")


def events(answer: HTTPResponse) -> Iterator[Any]:
    for line in answer:
        if line.startswith(b"data: {"):
            yield json.loads(line.removeprefix(b"data: "))


def check_stop(first: Replica, second: Replica, stop: list[str]) -> None:
    """A replica that is told to end lets a stream say how to go on, and another one does."""
    asked = {"walkers": 1, "steps": LONG, "thin": THIN, "seed": SEED, "stream": True}
    answer = first.open("POST", "/sample", asked, "text/event-stream")
    stream = events(answer)
    head = next(stream)
    next(stream)
    with subprocess.Popen(stop):
        last = list(stream)[-1]
    check(last.get("done") is False and "resume" in last, "a stream that is cut short says so")
    resume = last["resume"]
    check(resume["chain"] == head["chain"], f"and names its step, {last['step']}")
    rest = second.sample(**resume | {"steps": 2 * THIN})
    whole = second.sample(walkers=1, steps=rest["step"], thin=THIN, seed=SEED)
    check(rest["samples"][-1] == whole["samples"][-1], "another replica goes on as if nothing was")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("addresses", nargs="+", metavar="ADDRESS")
    parser.add_argument("--stop", metavar="COMMAND", help="ends the replica at the first address")
    parser.add_argument("--wait", type=float, default=60, help="seconds until all must be ready")
    asked = parser.parse_args()
    if asked.stop and len(asked.addresses) < 2:
        parser.error("--stop needs a second address, where the stream goes on")
    replicas = [Replica(address) for address in asked.addresses]
    try:
        for replica in replicas:
            replica.wait(asked.wait)
            check_models(replica)
        paths = replicas[0].ask("GET", "/openapi.json")["paths"]
        if "/sample" not in paths:
            print("left out: this version has no /sample")
            return 0
        check_chains(replicas[0], replicas[-1])
        if asked.stop:
            check_stop(replicas[0], replicas[-1], shlex.split(asked.stop))
    except (Failure, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
