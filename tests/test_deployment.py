"""What is deployed agrees with the code: names, ports, times, and who may do what."""

import os
import re
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from service.settings import PREFIX, Settings

ROOT = Path(__file__).resolve().parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = ROOT / "docker-compose.yml"
HEALTHCHECK = ROOT / "deploy" / "healthcheck.py"
PAGE = ROOT / "docs" / "deployment.md"
FILES = [ROOT / "Dockerfile", COMPOSE, PAGE, *filter(Path.is_file, (ROOT / "deploy").iterdir())]

USER = "10001:10001"
SERVING = ("cpu", "gpu")
SETTINGS = {PREFIX + name.upper() for name in Settings.model_fields}
DEFAULTS = Settings.model_fields


def yaml(path: Path) -> list[Any]:
    return list(YAML(typ="safe").load_all(path.read_text(encoding="utf-8")))


def stages() -> dict[str, tuple[str, str]]:
    """The Dockerfile's stages in order: name, base, text."""
    parts = re.split(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, flags=re.M)[1:]
    return {name: (base, text) for base, name, text in zip(*[iter(parts)] * 3, strict=True)}


def whole(stage: str) -> str:
    """A stage's text with that of the stages it is made from."""
    base, text = stages()[stage]
    return (whole(base) if base in stages() else "") + text


def seconds(text: str) -> float:
    number, unit = re.fullmatch(r"(\d+)(s|m)", text).groups()  # type: ignore[union-attr]
    return int(number) * {"s": 1, "m": 60}[unit]


def needed(environment: dict[str, str]) -> float:
    """The longest that a stop takes: it drains, walks to its end, and closes what is open."""
    drain, grace = (
        float(environment.get(PREFIX + name.upper()) or DEFAULTS[name].default)
        for name in ("drain_seconds", "grace_seconds")
    )
    assert drain < grace, "the grace time ends the draining"
    return drain + 2 * grace


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return yaml(COMPOSE)[0]["services"]


@pytest.fixture(scope="module")
def pod() -> dict[str, Any]:
    (deployment,) = (d for d in yaml(ROOT / "deploy/kubernetes.yaml") if d["kind"] == "Deployment")
    return deployment["spec"]["template"]["spec"]


def test_compose_file_is_valid() -> None:
    words = ["-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    run = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_every_setting_that_is_named_exists(path: Path) -> None:
    named = set(re.findall(rf"{PREFIX}[A-Z_]*[A-Z]", path.read_text(encoding="utf-8")))
    assert named <= SETTINGS


def test_the_cpu_image_is_what_a_build_without_a_target_gives() -> None:
    assert list(stages())[-1] == "cpu"


def test_a_compose_service_builds_a_stage_that_there_is(services: dict[str, Any]) -> None:
    targets = {name: service["build"]["target"] for name, service in services.items()
               if "build" in service}  # fmt: skip
    assert targets == {"api": "cpu", "api-gpu": "gpu", "train": "train"}
    assert set(targets.values()) <= set(stages())


@pytest.mark.parametrize("stage", [*SERVING, "train"])
def test_every_image_runs_as_the_same_user_who_is_not_root(stage: str) -> None:
    text = whole(stage)
    assert re.findall(r"^USER (.*)$", text, re.M) == [USER]
    assert re.findall(r"--uid (\d+) --gid (\d+)", text) == [tuple(USER.split(":"))]
    assert text.rindex("USER ") > text.rindex("COPY "), "files belong to root"


@pytest.mark.parametrize("stage", SERVING)
def test_sigterm_reaches_the_service_and_no_shell(stage: str) -> None:
    assert 'ENTRYPOINT ["python", "-m", "service"]' in whole(stage)
    assert "STOPSIGNAL SIGTERM" in whole(stage)


@pytest.mark.parametrize(("stage", "extras"), [("cpu", "serve,cpu"), ("gpu", "serve,gpu")])
def test_no_torch_where_models_are_served(stage: str, extras: str) -> None:
    assert f"COPY --from=environment-{stage} " in whole(stage)
    assert re.findall(r"'\.\[(.*)\]'", whole(f"environment-{stage}")) == [extras]
    with (ROOT / "pyproject.toml").open("rb") as file:
        optional = tomllib.load(file)["project"]["optional-dependencies"]
    wanted = " ".join(word for extra in extras.split(",") for word in optional[extra])
    assert not re.search(r"\btorch\b|\bonnx\b|\blocalmoments\b", wanted)


def test_dependencies_are_installed_as_they_are_pinned() -> None:
    installs = re.findall(r"^.*\$INSTALL (.*)$", DOCKERFILE, re.M)
    assert len(installs) == 6
    assert all("--constraint constraints.txt" in i or "--no-deps" in i for i in installs)


def test_onnxruntime_sends_no_telemetry_from_an_image() -> None:
    for stage in (*SERVING, "train"):
        assert "ORT_DISABLE_TELEMETRY=1" in whole(stage)


def test_one_port_everywhere(services: dict[str, Any], pod: dict[str, Any]) -> None:
    port = str(DEFAULTS["port"].default)
    for stage in SERVING:
        assert re.findall(r"^EXPOSE (.*)$", whole(stage), re.M) == [port]
    for name in ("api", "api-gpu"):
        assert [p.rpartition(":")[2] for p in services[name]["ports"]] == [port]
    assert str(pod["containers"][0]["ports"][0]["containerPort"]) == port
    (scrape,) = yaml(ROOT / "deploy/prometheus.yml")[0]["scrape_configs"]
    assert str(scrape["dns_sd_configs"][0]["port"]) == port
    assert set(scrape["dns_sd_configs"][0]["names"]) <= set(services)


def test_only_this_machine_reaches_the_service_unless_asked_for(services: dict[str, Any]) -> None:
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert all(":-127.0.0.1:" in port for port in published)
    assert "ports" not in services["redis"]


def test_there_is_time_to_drain(services: dict[str, Any], pod: dict[str, Any]) -> None:
    for name in ("api", "api-gpu"):
        grace = seconds(services[name]["stop_grace_period"])
        assert grace > needed(services[name]["environment"])
    environment = {v["name"]: v.get("value", "") for v in pod["containers"][0]["env"]}
    assert pod["terminationGracePeriodSeconds"] > needed(environment)


def test_containers_may_do_no_more_than_they_need(
    services: dict[str, Any], pod: dict[str, Any]
) -> None:
    for name in ("api", "api-gpu", "train"):
        assert services[name]["read_only"]
        assert services[name]["cap_drop"] == ["ALL"]
        assert services[name]["security_opt"] == ["no-new-privileges:true"]
    container = pod["containers"][0]["securityContext"]
    assert container["readOnlyRootFilesystem"]
    assert not container["allowPrivilegeEscalation"]
    user = f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}"
    assert user == USER


def test_a_service_of_our_name_does_not_overwrite_our_settings(pod: dict[str, Any]) -> None:
    assert pod["enableServiceLinks"] is False


def test_chains_are_kept_and_never_evicted(services: dict[str, Any]) -> None:
    command = services["redis"]["command"]
    options = dict(zip(command[::2], command[1::2], strict=True))
    assert options["--appendonly"] == "yes"
    assert options["--maxmemory-policy"] == "noeviction"
    assert services["redis"]["volumes"] == ["redis:/data"]


def test_life_restarts_and_readiness_routes(services: dict[str, Any], pod: dict[str, Any]) -> None:
    container = pod["containers"][0]
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert services["api"]["healthcheck"]["test"][-1] == "/readyz"
    for stage in SERVING:
        assert '/srv/localmoments/healthcheck.py", "/healthz"]' in whole(stage)


def test_nothing_but_what_an_image_is_made_of_reaches_the_build() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    kept = {line[1:] for line in lines if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.M)
    assert "*" in lines
    assert kept == {word for words in copied for word in words.split()}


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response({"/healthz": 200}.get(self.path, 503))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_healthcheck_tells_what_the_service_says() -> None:
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            assert healthcheck(server.server_port, "/healthz") == 0
            assert healthcheck(server.server_port, "/readyz") == 1
        finally:
            server.shutdown()
    assert healthcheck(server.server_port, "/healthz") == 1


def healthcheck(port: int, path: str) -> int:
    words = [sys.executable, str(HEALTHCHECK), path]
    environment = {**os.environ, f"{PREFIX}PORT": str(port), "http_proxy": "http://127.0.0.1:1"}
    return subprocess.run(words, env=environment, capture_output=True, check=False).returncode
