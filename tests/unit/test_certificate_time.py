"""A store whose certificate is out of time may be right, and this machine's clock wrong: the words say so, and it is
waited for."""

from __future__ import annotations

import ssl

import pytest
import redis

from gossamer.backends.postgres.errors import translate
from gossamer.backends.redis.connection import translated
from gossamer.errors import BackendUnavailable


def refused(code: int) -> ssl.SSLCertVerificationError:
    """As OpenSSL refuses a certificate."""
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.reason = code, "CERTIFICATE_VERIFY_FAILED"
    return error


@pytest.mark.parametrize(("code", "words"), [(10, "has expired"), (9, "is not valid yet")])
def test_a_certificate_out_of_time_names_the_clock_and_is_an_outage(code: int, words: str) -> None:
    with pytest.raises(BackendUnavailable) as state, translated("state.example"):
        raise redis.exceptions.ConnectionError("Error 1 connecting") from refused(code)
    records = translate(refused(code), "records.example")

    assert isinstance(records, BackendUnavailable)
    for said in (str(state.value), str(records)):
        assert f"its certificate {words} by this machine's clock, which says 20" in said
        assert "Set the clock, or renew the certificate." in said


def test_other_refusals_of_a_certificate_do_not_speak_of_the_clock() -> None:
    with pytest.raises(BackendUnavailable) as state, translated("state.example"):
        raise redis.exceptions.ConnectionError("Error 1 connecting") from refused(18)

    assert "clock" not in str(state.value) + str(translate(refused(18), "records.example"))
