"""The deployment files agree with the code: names, ports, timeouts, permissions."""

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


def read_yaml(path: Path) -> list[Any]:
    return list(YAML(typ="safe").load_all(path.read_text(encoding="utf-8")))


def stages() -> dict[str, tuple[str, str]]:
    """The Dockerfile's stages in order: name, base, text."""
    parts = re.split(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, flags=re.M)[1:]
    return {name: (base, text) for base, name, text in zip(*[iter(parts)] * 3, strict=True)}


def full_text(stage: str) -> str:
    """The text of a stage after that of the stages that it builds on."""
    base, text = stages()[stage]
    return (full_text(base) if base in stages() else "") + text


def seconds(text: str) -> float:
    number, unit = re.fullmatch(r"(\d+)(s|m)", text).groups()  # type: ignore[union-attr]
    return int(number) * {"s": 1, "m": 60}[unit]


def shutdown_seconds(environment: dict[str, str]) -> float:
    """The longest time a stop can take: draining, ending streams, closing connections."""
    drain, grace = (
        float(environment.get(PREFIX + name.upper()) or DEFAULTS[name].default)
        for name in ("drain_seconds", "grace_seconds")
    )
    assert drain < grace, "the grace time must be longer than the drain time"
    return drain + 2 * grace


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return read_yaml(COMPOSE)[0]["services"]


@pytest.fixture(scope="module")
def pod() -> dict[str, Any]:
    (deployment,) = (
        d for d in read_yaml(ROOT / "deploy/kubernetes.yaml") if d["kind"] == "Deployment"
    )
    return deployment["spec"]["template"]["spec"]


def test_compose_file_is_valid() -> None:
    words = ["-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    run = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_every_setting_in_a_deployment_file_exists(path: Path) -> None:
    named = set(re.findall(rf"{PREFIX}[A-Z_]*[A-Z]", path.read_text(encoding="utf-8")))
    assert named <= SETTINGS


def test_a_build_without_a_target_gives_the_cpu_image() -> None:
    assert list(stages())[-1] == "cpu"


def test_compose_services_build_stages_of_the_dockerfile(services: dict[str, Any]) -> None:
    targets = {name: service["build"]["target"] for name, service in services.items()
               if "build" in service}  # fmt: skip
    assert targets == {"api": "cpu", "api-gpu": "gpu", "train": "train"}
    assert set(targets.values()) <= set(stages())


@pytest.mark.parametrize("stage", [*SERVING, "train"])
def test_every_image_runs_as_the_same_user_and_not_as_root(stage: str) -> None:
    text = full_text(stage)
    assert re.findall(r"^USER (.*)$", text, re.M) == [USER]
    assert re.findall(r"--uid (\d+) --gid (\d+)", text) == [tuple(USER.split(":"))]
    assert text.rindex("USER ") > text.rindex("COPY "), "files belong to root"


@pytest.mark.parametrize("stage", SERVING)
def test_sigterm_reaches_the_service_without_a_shell(stage: str) -> None:
    assert 'ENTRYPOINT ["localmoments", "serve"]' in full_text(stage)
    assert "STOPSIGNAL SIGTERM" in full_text(stage)


@pytest.mark.parametrize(("stage", "extras"), [("cpu", "serve,cpu"), ("gpu", "serve,gpu")])
def test_serving_images_do_not_install_torch(stage: str, extras: str) -> None:
    assert f"COPY --from=environment-{stage} " in full_text(stage)
    assert re.findall(r"'\.\[(.*)\]'", full_text(f"environment-{stage}")) == [extras]
    with (ROOT / "pyproject.toml").open("rb") as file:
        optional = tomllib.load(file)["project"]["optional-dependencies"]
    requirements = " ".join(word for extra in extras.split(",") for word in optional[extra])
    assert not re.search(r"\btorch\b|\bonnx\b|\blocalmoments\b", requirements)


@pytest.mark.parametrize("stage", ["environment-cpu", "environment-gpu", "environment-train"])
def test_every_environment_installs_pinned_dependencies_and_then_the_package(stage: str) -> None:
    dependencies, package = re.findall(r"\$INSTALL (.*)$", full_text(stage), re.M)
    assert dependencies.startswith("--constraint constraints.txt '.[")
    assert package.startswith("--no-deps --force-reinstall /wheels/*.whl")


def test_every_package_of_the_project_is_in_the_wheel_and_in_the_empty_package() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        found = tomllib.load(file)["tool"]["setuptools"]["packages"]["find"]["include"]
    for package in (pattern.rstrip("*") for pattern in found):
        assert f"COPY {package} {package}\n" in full_text("package")
        assert f"{package}/__init__.py" in full_text("environment")


def test_onnxruntime_sends_no_telemetry_from_an_image() -> None:
    for stage in (*SERVING, "train"):
        assert "ORT_DISABLE_TELEMETRY=1" in full_text(stage)


def test_all_files_use_the_default_port(services: dict[str, Any], pod: dict[str, Any]) -> None:
    port = str(DEFAULTS["port"].default)
    for stage in SERVING:
        assert re.findall(r"^EXPOSE (.*)$", full_text(stage), re.M) == [port]
    for name in ("api", "api-gpu"):
        assert [p.rpartition(":")[2] for p in services[name]["ports"]] == [port]
    assert str(pod["containers"][0]["ports"][0]["containerPort"]) == port
    (scrape,) = read_yaml(ROOT / "deploy/prometheus.yml")[0]["scrape_configs"]
    assert str(scrape["dns_sd_configs"][0]["port"]) == port
    assert set(scrape["dns_sd_configs"][0]["names"]) <= set(services)


def test_published_ports_are_local_by_default(services: dict[str, Any]) -> None:
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert all(":-127.0.0.1:" in port for port in published)
    assert "ports" not in services["redis"]


def test_a_stopped_container_has_time_to_drain(
    services: dict[str, Any], pod: dict[str, Any]
) -> None:
    for name in ("api", "api-gpu"):
        grace = seconds(services[name]["stop_grace_period"])
        assert grace > shutdown_seconds(services[name]["environment"])
    environment = {v["name"]: v.get("value", "") for v in pod["containers"][0]["env"]}
    assert pod["terminationGracePeriodSeconds"] > shutdown_seconds(environment)


def test_containers_have_no_more_permissions_than_they_need(
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


def test_kubernetes_does_not_set_variables_with_the_prefix_of_our_settings(
    pod: dict[str, Any],
) -> None:
    assert pod["enableServiceLinks"] is False


def test_redis_persists_chains_and_never_evicts_them(services: dict[str, Any]) -> None:
    command = services["redis"]["command"]
    options = dict(zip(command[::2], command[1::2], strict=True))
    assert options["--appendonly"] == "yes"
    assert options["--maxmemory-policy"] == "noeviction"
    assert services["redis"]["volumes"] == ["redis:/data"]


def test_liveness_decides_on_restarts_and_readiness_on_traffic(
    services: dict[str, Any], pod: dict[str, Any]
) -> None:
    container = pod["containers"][0]
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert services["api"]["healthcheck"]["test"][-1] == "/readyz"
    for stage in SERVING:
        assert '/srv/localmoments/healthcheck.py", "/healthz"]' in full_text(stage)


def test_the_build_context_has_only_what_the_images_copy() -> None:
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


def test_the_health_check_reports_the_answer_of_the_service() -> None:
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
