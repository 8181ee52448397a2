"""The frontier of a fleet on Redis or Valkey, one server or a cluster. keys.py documents the keyspace, lua/ has the
scripts."""
