#!/bin/sh
# Create the passwords of deploy/compose.yaml; existing ones are kept. Only you can read the folder; the users inside the
# containers must be able to read the files in it.
set -eu
umask 022
folder=$(dirname "$0")/secrets
mkdir -p "$folder"
chmod 700 "$folder"
cd "$folder"

random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
once() { # once NAME TEXT
    [ -s "$1" ] || printf '%s' "$2" >"$1"
}

once valkey_password "$(random)"
once postgres_password "$(random)"
once grafana_password "$(random)"
once fleet_key "$(random)"
once s3_key_id "gossamer"
once s3_secret "$(random)"
once metrics_key "made by: gossamer keys add prometheus --scopes metrics"
once valkey_conf "requirepass $(cat valkey_password)
"
once state "redis://:$(cat valkey_password)@valkey:6379/0"
once records "postgresql://gossamer:$(cat postgres_password)@postgres:5432/crawls"
once s3_rights "{\"identities\": [{\"name\": \"gossamer\", \"credentials\": [{\"accessKey\": \"$(cat s3_key_id)\", \"secretKey\": \"$(cat s3_secret)\"}], \"actions\": [\"Admin\", \"Read\", \"Write\", \"List\"]}]}"
