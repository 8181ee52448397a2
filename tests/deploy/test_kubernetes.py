"""The manifests for Kubernetes: every overlay builds, is valid, and asks for no more than it needs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from gossamer.process.supervisor import GRACE
from gossamer.settings import Settings, known_keys
from tests.docs.test_lists import verbs

from .test_image_and_compose import DOCKERFILE, settings_of
from .tools import DEPLOY, program, said

HOME = DEPLOY / "kubernetes"
ALIVE = "/tmp/gossamer-alive"  # of the image
CHROMIUM = {"type": "Localhost", "localhostProfile": "gossamer/chromium-seccomp.json"}  # of deploy/image
OVERLAYS = sorted(file.parent.name for file in (HOME / "overlays").glob("*/kustomization.yaml"))
OLDEST, NEWEST = "1.29", "1.34"  # versions of Kubernetes that the manifests are checked against


def built(overlay: str, folder: Path) -> Path:
    file = folder / f"{overlay}.yaml"
    kubectl = program("kubectl", "see kubernetes.io/docs/tasks/tools")
    file.write_text(said(kubectl, "kustomize", HOME / "overlays" / overlay), encoding="utf-8")
    return file


def things(file: Path, *kinds: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(file.read_text(encoding="utf-8")) if one["kind"] in kinds]


def test_every_file_is_named_by_a_kustomization_and_the_other_way_round() -> None:
    named = set()
    for file in HOME.rglob("kustomization.yaml"):
        for name in yaml.safe_load(file.read_text(encoding="utf-8"))["resources"]:
            target = (file.parent / name).resolve()
            named.add(target / "kustomization.yaml" if target.is_dir() else target)
    there = {file.resolve() for file in HOME.rglob("*.yaml")}
    tops = {(HOME / "overlays" / name / "kustomization.yaml").resolve() for name in OVERLAYS}
    assert named | tops == there


@pytest.mark.long
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_builds_and_is_valid(overlay: str, tmp_path: Path) -> None:
    file = built(overlay, tmp_path)
    for version in (OLDEST, NEWEST):
        said(program("kubernetes-validate"), "--strict", "--quiet", "--no-warn", "-k", version, file)


@pytest.mark.long
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_pods_may_do_little_and_have_time_to_drain(overlay: str, tmp_path: Path) -> None:
    for one in things(built(overlay, tmp_path), "Deployment", "StatefulSet"):
        pod = one["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"]
        wanted = CHROMIUM if one["metadata"]["name"] == "browser" else {"type": "RuntimeDefault"}
        assert pod["securityContext"]["seccompProfile"] == wanted
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
            }  # fmt: skip
            assert container["resources"].keys() == {"requests", "limits"}
            assert {"startupProbe", "livenessProbe", "readinessProbe"} & container.keys()
        if one["kind"] == "Deployment":
            assert pod["securityContext"]["runAsUser"] == 10001
            (container,) = pod["containers"]
            assert container["args"][0] in {verb.removeprefix("gossamer ") for verb in verbs()}
            if container["args"][0] == "worker":
                least = (Settings().crawl.drain + GRACE).total_seconds()
                assert pod["terminationGracePeriodSeconds"] >= least + 15


@pytest.mark.long
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_everything_that_is_named_is_there(overlay: str, tmp_path: Path) -> None:
    file = built(overlay, tmp_path)
    (settings,) = things(file, "ConfigMap")
    assert settings_of(settings["data"]) <= set(known_keys())
    deployments = {one["metadata"]["name"] for one in things(file, "Deployment")}
    budgets = things(file, "PodDisruptionBudget")
    assert {one["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"] for one in budgets} == deployments
    for one in things(file, "ScaledObject", "HorizontalPodAutoscaler"):
        target = one["spec"]["scaleTargetRef"]["name"]
        assert target in deployments
        (deployment,) = [found for found in things(file, "Deployment") if found["metadata"]["name"] == target]
        assert "replicas" not in deployment["spec"]  # two would decide
    policies = {one["metadata"]["name"]: one["spec"] for one in things(file, "NetworkPolicy")}
    assert policies["gossamer"]["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in policies["gossamer"]
    (internet,) = [
        one["ipBlock"] for rule in policies["gossamer"]["egress"] for one in rule["to"]
        if one.get("ipBlock", {}).get("cidr") == "0.0.0.0/0"
    ]  # fmt: skip
    assert {"10.0.0.0/8", "169.254.0.0/16", "127.0.0.0/8"} <= set(internet["except"])


def test_autoscalers_ask_for_what_the_program_answers(tmp_path: Path) -> None:
    asked = [
        trigger["metadata"]
        for overlay in ("browser", "prometheus-scaler")
        for one in things(built(overlay, tmp_path), "ScaledObject")
        for trigger in one["spec"]["triggers"]
    ]
    places = {one["valueLocation"] for one in asked if "valueLocation" in one}
    assert places == {"lanes.http.workers_wanted", "lanes.browser.workers_wanted"}
    assert all(one["url"].endswith("/api/v1/scaling") for one in asked if "url" in one)
    assert [one["query"] for one in asked if "query" in one] == ['max(gossamer_workers_wanted{lane="http"})']


def test_probes_tell_by_a_file_whether_a_process_lives_without_a_shell(tmp_path: Path) -> None:
    assert f"GOSSAMER_FLEET__ALIVE={ALIVE}" in DOCKERFILE
    health = re.search(r"HEALTHCHECK .*\n +CMD (\[.*\])", DOCKERFILE)
    assert health is not None
    commands = [json.loads(health[1])]
    for file in ("base/worker", "base/scheduler", "overlays/browser/browser"):
        probes = re.findall(r"command: (\[.*\])", (HOME / f"{file}.yaml").read_text(encoding="utf-8"))
        commands += [yaml.safe_load(probe) for probe in probes]
    assert len(commands) == 7
    file = tmp_path / "alive"
    for command in commands:
        words = [str(file) if word == ALIVE else word for word in command]
        assert str(file) in words
        ages = {}
        for age in (0, 3600):
            file.touch()
            os.utime(file, (time.time() - age,) * 2)
            ages[age] = subprocess.run(words).returncode
        file.unlink()
        gone = subprocess.run(words, stderr=subprocess.DEVNULL).returncode
        assert (ages[0], bool(ages[3600]), bool(gone)) == (0, True, True), command
