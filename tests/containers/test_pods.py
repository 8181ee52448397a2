"""The Deployments of deploy/kubernetes as pods of Podman, with the stores of the Compose stack. Podman plays
Deployments and ConfigMaps; Services, autoscalers, budgets and policies are checked by their schemas alone."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.tools import DEPLOY
from tests.patience import poll_until

from .stack import Stack, assert_complete

pytestmark = pytest.mark.timeout(900)
HOME = DEPLOY / "kubernetes"
IMAGE = "localhost/gossamer-project:1"
# The keys that deploy/kubernetes/README.md names, and the files of deploy/secrets.sh.
KEYS = ("state", "records", "s3-key-id", "s3-secret", "fleet-key", "metrics-key")


def manifest(stack: Stack) -> Path:
    """The base with the patch of the overlay `small`, without the kinds that Podman does not know."""
    secrets = stack.folder / "pod-secrets"
    secrets.mkdir()
    for key in KEYS:
        shutil.copy2(stack.folder / "deploy" / "secrets" / key.replace("-", "_"), secrets / key)
    played: list[dict[str, Any]] = []
    for name in ("settings", "scheduler", "server", "worker"):
        for one in yaml.safe_load_all((HOME / "base" / f"{name}.yaml").read_text(encoding="utf-8")):
            if one["kind"] == "ConfigMap":
                small = yaml.safe_load((HOME / "overlays" / "small" / "kustomization.yaml").read_text(encoding="utf-8"))
                (archive,) = yaml.safe_load(small["patches"][0]["patch"])
                one["data"]["GOSSAMER_ARCHIVE"] = archive["value"]
                one["data"].pop("GOSSAMER_FETCH__USER_AGENT")  # the project of the tests has one
                played.append(one)
            elif one["kind"] == "Deployment":
                played += replicas(one, secrets)
    file = stack.folder / "pods.yaml"
    file.write_text(yaml.safe_dump_all(played), encoding="utf-8")
    return file


def replicas(deployment: dict[str, Any], secrets: Path) -> list[dict[str, Any]]:
    """A Deployment of one for each of its pods, because Podman 4.3 makes one volume for the emptyDirs of one name."""
    made = []
    for number in range(deployment["spec"]["replicas"]):
        one = copy.deepcopy(deployment)
        one["metadata"]["name"] = name = f"{deployment['metadata']['name']}-{number}"
        one["spec"]["replicas"] = 1
        pod = one["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        container["image"] = IMAGE
        if name.startswith("server"):
            # Podman opens ports on this machine, where two servers collide, and asks probes over HTTP with curl, which
            # the image has not.
            for word in ("ports", "startupProbe", "livenessProbe", "readinessProbe"):
                container.pop(word)
        for volume in pod["volumes"]:
            if "secret" in volume:
                volume.pop("secret")  # Podman 4.3 mounts it as the manifest has it, in base64
                volume["hostPath"] = {"path": str(secrets), "type": "Directory"}
            else:
                volume["name"] = f"{name}-{volume['name']}"
        for mount in container["volumeMounts"]:
            if mount["name"] != "secrets":
                mount["name"] = f"{name}-{mount['name']}"
        made.append(one)
    return made


def test_the_deployments_run_as_pods_and_finish_a_crawl(stack: Stack) -> None:
    context = stack.folder / "image-of-project"
    shutil.copytree(stack.folder / "project", context)
    (context / "Containerfile").write_text(
        "FROM localhost/gossamer:worker\nCOPY gossamer.toml /project/\nCOPY spiders /project/spiders\n"
    )
    stack.engine.podman("build", "--quiet", "--tag", IMAGE, context)
    idle = stack.containers("worker_")
    stack.engine.podman("stop", "--time", "45", *idle)
    file = manifest(stack)
    with stack.site(pages=200) as site:
        stack.engine.podman("kube", "play", "--network", f"{stack.name}_default", file)
        try:
            names = stack.engine.podman("ps", "--format", "{{.Names}}").split()
            pods = [name for name in names if "-pod-" in name and not name.endswith("-infra")]
            assert sorted(name.split("-")[0] for name in pods) == [
                "scheduler", "scheduler", "server", "server", "worker", "worker",
            ]  # fmt: skip
            stack.begin(site)
            stack.wait_done(site)
            assert_complete(stack, site)
            assert site.twice() == {}
            for name in pods:
                if not name.startswith("server"):
                    poll_until(lambda n=name: stack.is_healthy(n), f"{name} is alive", every=1.0)  # type: ignore[misc]
                assert stack.engine.state(name, ".HostConfig.ReadonlyRootfs") == "true"
                assert stack.engine.state(name, ".EffectiveCaps") == "[]"
                assert stack.engine.podman("exec", name, "id", "-u").strip() == "10001"
            schedulers = [name for name in pods if name.startswith("scheduler")]
            told = [stack.engine.podman("logs", name) for name in schedulers]
            assert not any("leads" in one for one in told)  # that of the Compose stack does, and these stand by
            workers = [name for name in pods if name.startswith("worker")]
            stack.engine.podman("stop", "--time", "45", *workers)
            assert {stack.engine.state(name, ".State.ExitCode") for name in workers} == {"0"}
        finally:
            stack.engine.podman("kube", "down", file, bad=True)
            stack.engine.podman("start", *idle)
