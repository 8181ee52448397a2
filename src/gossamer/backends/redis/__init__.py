"""The fleet's frontier on Redis or Valkey, one server or a cluster. keys.py draws the keyspace, lua/ has the verbs."""
