"""Images, the Compose stack and pods, run by Podman: `make test-containers`."""
