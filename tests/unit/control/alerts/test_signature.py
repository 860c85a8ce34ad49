"""Signatures are those that libraries of Standard Webhooks check."""

import hmac
from base64 import b64encode

from tiffin.control.alerts.signature import signed

BODY = b'{"test": 2432232314}'


def test_the_example_of_the_specification() -> None:
    headers = dict(
        signed(
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            BODY,
        )
    )
    assert headers[b"webhook-signature"] == b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert headers[b"webhook-id"] == b"msg_p5jXN8AQM9LWM0D4loKWxJek"
    assert headers[b"webhook-timestamp"] == b"1614265330"


def test_a_key_of_ones_own_is_itself() -> None:
    mark = hmac.digest(b"own", b"a.5." + BODY, "sha256")
    headers = dict(signed("own", "a", 5, BODY))
    assert headers[b"webhook-signature"] == b"v1," + b64encode(mark)
    assert signed("whsec_not base64", "a", 5, BODY)
