"""What docs/deployment.md hands out: Dockerfile, compose.yaml, and the manifests for Kubernetes.

Nothing of it runs here, for want of an engine: the files are read, and compared with the server.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest
import yaml

from deep_agent_mcp.server.cli.main import cli
from deep_agent_mcp.server.settings.settings import Settings
from deep_agent_mcp.server.settings.sources import load_settings
from deep_agent_mcp.server.transports.health import HEALTH_PATHS
from tests.server.test_transports import Web

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "examples" / "deployment"
DRAIN = Settings.model_fields["drain_seconds"].default


def only(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    """Return the schema of an object with these members and no others."""
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": [*required],
        "additionalProperties": False,
    }


TEXT, NUMBER, YES = {"type": "string", "minLength": 1}, {"type": "integer"}, {"const": True}
TEXTS = {"type": "array", "items": TEXT, "minItems": 1}
LABELS = only({"app": {"const": "deep-agent"}})
META = only({"name": {"const": "deep-agent"}, "labels": LABELS}, annotations={"type": "object"})
SELECTOR = only({"matchLabels": LABELS})


def listed(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": schema, "minItems": 1}


PROBE = only(
    {"httpGet": only({"path": {"enum": [*HEALTH_PATHS]}, "port": {"const": "http"}})},
    **dict.fromkeys(("periodSeconds", "timeoutSeconds", "failureThreshold"), NUMBER),
)
VARIABLE = only(
    {"name": TEXT},
    value=TEXT,
    valueFrom=only({"secretKeyRef": only({"name": TEXT, "key": TEXT}, optional=YES)}),
)
CONTAINER = only(
    {
        "name": TEXT,
        "image": TEXT,
        "env": listed(VARIABLE),
        "ports": listed(only({"name": {"const": "http"}, "containerPort": {"const": 8000}})),
        "startupProbe": PROBE,
        "livenessProbe": PROBE,
        "readinessProbe": PROBE,
        "lifecycle": only({"preStop": only({"exec": only({"command": TEXTS})})}),
        "resources": only({"requests": {"type": "object"}, "limits": {"type": "object"}}),
        "securityContext": only(
            {
                "allowPrivilegeEscalation": {"const": False},
                "readOnlyRootFilesystem": YES,
                "capabilities": only({"drop": {"const": ["ALL"]}}),
            }
        ),
        "volumeMounts": listed(only({"name": TEXT, "mountPath": TEXT})),
    }
)
POD = only(
    {
        "terminationGracePeriodSeconds": NUMBER,
        "automountServiceAccountToken": {"const": False},
        "securityContext": only(
            {
                "runAsNonRoot": YES,
                "runAsUser": {"const": 10001},
                "runAsGroup": {"const": 10001},
                "fsGroup": {"const": 10001},
                "seccompProfile": only({"type": {"const": "RuntimeDefault"}}),
            }
        ),
        "containers": listed(CONTAINER),
        "volumes": listed(
            only(
                {"name": TEXT},
                persistentVolumeClaim=only({"claimName": {"const": "deep-agent"}}),
                emptyDir=only({}),
            )
        ),
    },
    topologySpreadConstraints=listed(
        only(
            {
                "maxSkew": {"const": 1},
                "topologyKey": {"const": "kubernetes.io/hostname"},
                "whenUnsatisfiable": {"const": "ScheduleAnyway"},
                "labelSelector": SELECTOR,
            }
        )
    ),
)
BACKEND = only(
    {"service": only({"name": {"const": "deep-agent"}, "port": only({"name": {"const": "http"}})})}
)
KINDS = {
    ("v1", "PersistentVolumeClaim"): only(
        {
            "accessModes": {"const": ["ReadWriteOnce"]},
            "resources": only({"requests": only({"storage": TEXT})}),
        }
    ),
    ("apps/v1", "Deployment"): only(
        {
            "replicas": NUMBER,
            "strategy": {
                "oneOf": [
                    only({"type": {"const": "Recreate"}}),
                    only(
                        {
                            "type": {"const": "RollingUpdate"},
                            "rollingUpdate": only({"maxSurge": NUMBER, "maxUnavailable": NUMBER}),
                        }
                    ),
                ]
            },
            "selector": SELECTOR,
            "template": only(
                {
                    "metadata": only({"labels": LABELS}, annotations={"type": "object"}),
                    "spec": POD,
                }
            ),
        }
    ),
    ("v1", "Service"): only(
        {
            "selector": LABELS,
            "ports": listed(only({"name": TEXT, "port": NUMBER, "targetPort": {"const": "http"}})),
        }
    ),
    ("policy/v1", "PodDisruptionBudget"): only({"maxUnavailable": NUMBER, "selector": SELECTOR}),
    ("networking.k8s.io/v1", "Ingress"): only(
        {
            "rules": listed(
                only(
                    {
                        "host": TEXT,
                        "http": only(
                            {
                                "paths": listed(
                                    only({"path": TEXT, "pathType": TEXT, "backend": BACKEND})
                                )
                            }
                        ),
                    }
                )
            ),
            "tls": listed(only({"hosts": TEXTS, "secretName": TEXT})),
        }
    ),
}
"""The `spec` of each kind that the manifest has, with the fields that it uses."""


SINGLE, SEVERAL = "kubernetes.yaml", "kubernetes-replicas.yaml"
each_manifest = pytest.mark.parametrize("name", [SINGLE, SEVERAL])


def manifests(name: str) -> dict[str, Any]:
    text = (PLACE / name).read_text(encoding="utf-8")
    return {one["kind"]: one for one in yaml.safe_load_all(text)}


def pod(name: str) -> dict[str, Any]:
    return manifests(name)["Deployment"]["spec"]["template"]["spec"]


def instructions() -> list[tuple[str, str]]:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines) if name]


def values(name: str) -> list[str]:
    return [rest for one, rest in instructions() if one == name]


def image_variables() -> dict[str, str]:
    return dict(one.split("=", 1) for rest in values("ENV") for one in shlex.split(rest))


def settings_of(tmp_path: Path, variables: dict[str, str]) -> Settings:
    """Return what a container with these variables is set to; each has to mean something."""
    unknown: list[str] = []
    own = {key: one for key, one in variables.items() if key.startswith("DEEP_AGENT_")}
    given = {**image_variables(), **own, "DEEP_AGENT_STATE_DIR": str(tmp_path)}
    settings = load_settings({}, given, config=None, warn=unknown.append)
    assert not unknown
    assert (settings.transport, settings.port, settings.needs_token) == ("http", 8000, True)
    return settings


@each_manifest
def test_manifests_are_objects_of_kubernetes_with_known_fields(name: str) -> None:
    every = manifests(name)
    kinds = {(one["apiVersion"], kind) for kind, one in every.items()}
    assert KINDS.keys() - kinds == ({("v1", "PersistentVolumeClaim")} if name == SEVERAL else set())
    for kind, one in every.items():
        version = one.pop("apiVersion")
        shape = only({"kind": TEXT, "metadata": META, "spec": KINDS[version, kind]})
        jsonschema.validate(one, shape, cls=jsonschema.Draft202012Validator)


@each_manifest
def test_a_pod_has_more_time_than_the_server_needs_to_drain(name: str) -> None:
    (container,) = pod(name)["containers"]
    variables = {one["name"]: one.get("value") for one in container["env"]}
    assert float(variables["DEEP_AGENT_DRAIN_SECONDS"]) == DRAIN
    sleep, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
    assert sleep == "sleep"
    assert pod(name)["terminationGracePeriodSeconds"] >= DRAIN + float(seconds) + 10
    ready = container["readinessProbe"]
    assert ready["httpGet"]["path"] == "/readyz"
    assert ready["periodSeconds"] * ready["failureThreshold"] <= float(seconds)
    assert {container[one]["httpGet"]["path"] for one in ("livenessProbe", "startupProbe")} == {
        "/healthz"
    }


@each_manifest
def test_a_pod_is_set_up_as_the_image_and_the_ingress_expect(tmp_path: Path, name: str) -> None:
    (container,) = pod(name)["containers"]
    secret = {"DEEP_AGENT_JOURNAL": "postgresql://user:password@host/database"}
    given = {one["name"]: one.get("value", secret.get(one["name"], "")) for one in container["env"]}
    settings = settings_of(tmp_path, given)
    deployment = manifests(name)["Deployment"]["spec"]
    is_several = deployment["replicas"] > 1
    assert is_several == (name == SEVERAL) == settings.replicas
    assert is_several == (deployment["strategy"]["type"] == "RollingUpdate")
    (rule,) = manifests(name)["Ingress"]["spec"]["rules"]
    assert settings.allow_hosts == (rule["host"],)
    mounts = {one["mountPath"] for one in container["volumeMounts"]}
    assert mounts == {*values("VOLUME"), "/tmp"}
    names = {one["name"] for one in pod(name)["volumes"]}
    assert names == {one["name"] for one in container["volumeMounts"]}
    (user,) = values("USER")
    context = pod(name)["securityContext"]
    assert user == f"{context['runAsUser']}:{context['runAsGroup']}"


def test_the_image_runs_a_command_that_exists_as_a_user_without_rights() -> None:
    (entry,), (command,) = values("ENTRYPOINT"), values("CMD")
    assert json.loads(entry)[0] in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert json.loads(command)[0] in cli.commands
    (user,) = values("USER")
    assert user.split(":")[0] in " ".join(values("RUN")) and user[0] != "0"
    assert values("STOPSIGNAL") == ["SIGTERM"]
    assert values("EXPOSE") == [image_variables()["DEEP_AGENT_PORT"]]
    assert values("VOLUME") == [image_variables()["DEEP_AGENT_STATE_DIR"]]


def test_the_image_is_made_of_all_that_the_package_consists_of() -> None:
    copied = {one for rest in values("COPY") for one in rest.split()[:-1] if rest[0] != "-"}
    assert all((ROOT / one).exists() for one in copied)
    kept = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for one in copied:
        assert f"!{one.partition('/')[0]}" in kept
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    included = project.partition("wheel.sources]\n")[2].partition("\n\n")[0]
    assert set(re.findall(r'^"(\w+)" =', included, re.MULTILINE)) <= copied
    package = {f"deep_agent_mcp/{one.name}" for one in (ROOT / "deep_agent_mcp").glob("*.*")}
    assert package <= copied
    extras = project.partition("optional-dependencies]\n")[2].partition("\n\n[")[0]
    (chosen,) = [one.partition("=")[2] for one in values("ARG")]
    assert set(chosen.split(",")) <= set(re.findall(r"^(\w+) = \[", extras, re.MULTILINE))


def test_the_health_check_of_the_image_asks_a_server_that_serves() -> None:
    web = Web()
    try:
        (check,) = values("HEALTHCHECK")
        program, flag, code = json.loads(check.partition("CMD ")[2])
        assert program == "python"
        code = code.replace(":8000/", f":{web.said['port']}/")
        assert subprocess.run([sys.executable, flag, code], timeout=60, check=False).returncode == 0
    finally:
        web.stop()
    gone = subprocess.run(
        [sys.executable, flag, code], timeout=60, capture_output=True, check=False
    )
    assert gone.returncode != 0


def test_compose_sets_three_servers_up_behind_a_proxy(tmp_path: Path) -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    agents = {name: one for name, one in compose["services"].items() if name.startswith("agent-")}
    assert len(agents) == 3
    database, proxy = compose["services"]["postgres"], compose["services"]["proxy"]
    for agent in agents.values():
        given = {
            key: re.sub(r"\$\{\w+:[-?](\w+)[^}]*\}", r"\1", value)
            for key, value in agent["environment"].items()
            if value is not None
        }
        settings = settings_of(tmp_path, given)
        assert settings.allow_hosts == ("localhost",)
        assert settings.replicas and settings.journal is not None
        host = urlsplit(settings.journal.get_secret_value()).hostname
        assert compose["services"][host] == database
        assert int(agent["stop_grace_period"].removesuffix("s")) >= settings.drain_seconds + 10
        assert settings.drain_seconds == DRAIN
        assert "ports" not in agent and "volumes" not in agent
    named = [one for one in database["volumes"] + proxy["volumes"] if not one.startswith(".")]
    assert {one.partition(":")[0] for one in named} == compose["volumes"].keys()
    caddyfile = next(one for one in proxy["volumes"] if "Caddyfile" in one).split(":")[0]
    text = (ROOT / caddyfile).read_text(encoding="utf-8")
    upstreams = re.search(r"reverse_proxy (.*) \{", text)
    assert upstreams and upstreams[1].split() == [f"{name}:8000" for name in agents]
    assert "health_uri /readyz" in text and "Host localhost" in text


@pytest.mark.parametrize("name", ["nginx.conf", "Caddyfile"])
def test_braces_of_the_proxies_files_are_closed(name: str) -> None:
    depth = 0
    for line in (PLACE / name).read_text(encoding="utf-8").splitlines():
        code = line.partition("#")[0]
        depth += code.count("{") - code.count("}")
        assert depth >= 0
    assert depth == 0
