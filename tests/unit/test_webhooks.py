"""Signatures, secrets and pauses of callbacks."""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import timedelta

from gossamer.access.contract import CallbackSecret
from gossamer.access.webhooks import PAUSES, new_secret, pause_after, rotated, signed_headers, valid_secrets

NOW = 1_800_000_000.0


def test_the_signature_is_that_of_the_standard():
    # The example of the Standard Webhooks specification: its secret, its message, and the signature over them.
    secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"test": 2432232314}'
    headers = dict(signed_headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body, [secret]))

    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_during_a_rotation_there_is_a_signature_for_both_secrets():
    old = CallbackSecret(text=new_secret())
    new, before = rotated((old,), NOW)
    assert (before.text, before.until) == (old.text, NOW + 86_400)

    signed = dict(signed_headers("m", 1, b"x", [new.text, before.text]))["webhook-signature"]
    assert len(signed.split()) == 2
    key = base64.b64decode(old.text.removeprefix("whsec_"))
    expected = base64.b64encode(hmac.digest(key, b"m.1.x", hashlib.sha256)).decode()
    assert signed.split()[1] == f"v1,{expected}"
    assert valid_secrets((new, before), NOW + 86_401) == (new,)
    assert [one.text for one in rotated((new, before), NOW + 5)][1] == new.text  # at most two


def test_pauses_grow_and_end():
    pauses = [pause_after(tries, 0.0) for tries in range(1, len(PAUSES) + 2)]
    assert pauses == [*PAUSES, None]
    assert pause_after(1, 1.0) == PAUSES[0] * 1.2


def test_a_receiver_that_asks_for_time_gets_it_within_bounds():
    assert pause_after(1, 0.0, timedelta(minutes=3)) == timedelta(minutes=3)
    assert pause_after(1, 0.0, timedelta(seconds=1)) == PAUSES[0]
    assert pause_after(1, 0.0, timedelta(days=300)) == timedelta(days=1)
