"""Access over HTTP: keys, sign-in, repeated requests, callbacks."""
