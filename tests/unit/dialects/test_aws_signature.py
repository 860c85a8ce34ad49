"""Signatures of AWS, by the vectors that AWS published for its version 4, and what they cover."""

from hashlib import sha256
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.aws import ACCESS, SECRET
from tiffin.dialects.aws.credentials import read_credentials
from tiffin.dialects.aws.signature import (
    Credentials,
    Scope,
    Signed,
    authorization,
    canonical_request,
)
from tiffin.errors import ConfigInvalid

KEYS = Credentials(ACCESS, SECRET)
MOMENT = "20150830T123600Z"
SCOPE = Scope("us-east-1", "service", MOMENT)
USUAL = (("Host", "example.amazonaws.com"), ("X-Amz-Date", MOMENT))
FORM = ("Content-Type", "application/x-www-form-urlencoded")
# The session of the suite's post-sts-header-before.
SESSION = (
    "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSP"
    "fIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT"
    "7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlz"
    "m8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA=="
)


def signed(
    method: str = "POST",
    path: str = "/",
    *more: tuple[str, str],
    body: bytes = b"",
    keys: Credentials = KEYS,
    scope: Scope = SCOPE,
) -> str:
    request = Signed(method, path, [*USUAL, *more], sha256(body).hexdigest())
    return authorization(request, keys, scope).rpartition("=")[2]


VECTORS = {
    "get-vanilla": (
        signed("GET"),
        "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
    ),
    "get-vanilla-query-order-key-case": (
        signed("GET", "/?Param2=value2&Param1=value1"),
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
    ),
    "get-utf8": (
        signed("GET", "/\u1234"),
        "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85",
    ),
    "get-space": (
        signed("GET", "/example space/"),
        "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741",
    ),
    "get-slashes": (
        signed("GET", "//example//"),
        "9a624bd73a37c9a373b5312afbebe7a714a789de108f0bdfe846570885f57e84",
    ),
    "get-slash-pointless-dot": (
        signed("GET", "/./example"),
        "ef75d96142cf21edca26f06005da7988e4f8dc83a165a80865db7089db637ec5",
    ),
    "get-relative-relative": (
        signed("GET", "/example1/example2/../.."),
        "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
    ),
    "get-header-key-duplicate": (
        signed("GET", "/", *[("My-Header1", f"value{n}") for n in (2, 2, 1)]),
        "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea",
    ),
    "get-header-value-trim": (
        signed("GET", "/", ("My-Header1", " value1"), ("My-Header2", ' "a   b   c"')),
        "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
    ),
    "post-vanilla": (
        signed(),
        "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
    ),
    "post-x-www-form-urlencoded": (
        signed("POST", "/", FORM, body=b"Param1=value1"),
        "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
    ),
    "post-sts-header-before": (
        signed("POST", "/", ("X-Amz-Security-Token", SESSION)),
        "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead",
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_what_aws_published(name: str) -> None:
    ours, published = VECTORS[name]
    assert ours == published


def test_the_whole_header_of_the_guides_example() -> None:
    request = Signed(
        "GET",
        "/?Action=ListUsers&Version=2010-05-08",
        [
            ("host", "iam.amazonaws.com"),
            ("content-type", "application/x-www-form-urlencoded; charset=utf-8"),
            ("x-amz-date", MOMENT),
        ],
        sha256(b"").hexdigest(),
    )
    assert authorization(request, KEYS, Scope("us-east-1", "iam", MOMENT)) == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request,"
        " SignedHeaders=content-type;host;x-amz-date,"
        " Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
    )


WORDS = st.text("abcXYZ019-._~ %/=:", min_size=1, max_size=12)
NAMES = st.text("abcxyz-", min_size=1, max_size=8).map(lambda name: f"x-{name}")


@given(
    st.dictionaries(NAMES, WORDS, max_size=5),
    st.lists(st.tuples(st.text("abAB09", min_size=1), st.text("xyXY09")), max_size=5),
    st.randoms(use_true_random=False),
)
def test_every_spelling_of_a_request_is_signed_alike(
    headers: dict[str, str], query: list[tuple[str, str]], random: Random
) -> None:
    def spelled(pairs: list[tuple[str, str]], asked: list[tuple[str, str]]) -> tuple[str, str]:
        path = "/a?" + "&".join(f"{name}={value}" for name, value in asked)
        return canonical_request(Signed("POST", path, pairs, "0"))

    plain = spelled(list(headers.items()), query)
    odd = [(name.upper(), f"  {value.replace(' ', '   ')} ") for name, value in headers.items()]
    random.shuffle(odd)
    other = query.copy()
    random.shuffle(other)
    assert spelled(odd, other) == plain


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_another_body_has_another_signature(one: bytes, other: bytes) -> None:
    assert (signed(body=one) == signed(body=other)) == (one == other)


@pytest.mark.parametrize(
    "other",
    [
        signed("PUT"),
        signed("POST", "/b"),
        signed("POST", "/", FORM),
        signed(keys=Credentials(ACCESS, SECRET + "x")),
        signed(scope=SCOPE._replace(region="ap-south-1")),
        signed(scope=SCOPE._replace(service="s3")),
        signed(scope=SCOPE._replace(moment="20150831T123600Z")),
    ],
)
def test_whatever_is_signed_counts(other: str) -> None:
    assert other != signed()


PAIR = Credentials(ACCESS, SECRET)
FOR_A_WHILE = Credentials(ACCESS, SECRET, "tok/en==")
PRINTED = f'{{"Version": 1, "AccessKeyId": "{ACCESS}", "SecretAccessKey": "{SECRET}"'
IN_A_FILE = f"aws_access_key_id = {ACCESS}\naws_secret_access_key={SECRET}\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"{ACCESS}:{SECRET}", PAIR),
        (f"{ACCESS}:{SECRET}:tok/en==", FOR_A_WHILE),
        (f"{PRINTED}}}", PAIR),
        (
            f'{PRINTED}, "SessionToken": "tok/en==", "Expiration": "2026-12-03T12:00:00Z"}}',
            FOR_A_WHILE,
        ),
        (f"[work]\n{IN_A_FILE}", PAIR),
        (f"[default]\n{IN_A_FILE}aws_session_token=tok/en==\n[work]\nregion=x", FOR_A_WHILE),
    ],
)
def test_keys_are_read_in_every_form_that_they_are_kept_in(text: str, found: Credentials) -> None:
    assert read_credentials(text, {}) == found


def test_without_a_reference_the_usual_variables_hold() -> None:
    usual = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET}
    assert read_credentials("", usual) == PAIR
    assert read_credentials("", {**usual, "AWS_SESSION_TOKEN": "tok/en=="}) == FOR_A_WHILE
    with pytest.raises(ConfigInvalid, match="AWS_SECRET_ACCESS_KEY"):
        read_credentials("", {"AWS_ACCESS_KEY_ID": ACCESS})


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        f"{ACCESS}:",
        f"{ACCESS}:{SECRET}:a:b",
        f"{ACCESS}:{SECRET}\r\nx-evil: 1",
        f'{PRINTED}, "SessionToken": "a\\r\\nb"}}',
        f"{PRINTED}",
        "{}",
        f"[a]\n{IN_A_FILE}[b]\n{IN_A_FILE}",
        f"[default]\n{IN_A_FILE}[default]\n",
        "[default]\n",
    ],
)
def test_what_is_no_key_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        read_credentials(text, {})
    assert SECRET[:8] not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_secret_is_not_shown() -> None:
    assert SECRET not in repr(FOR_A_WHILE)
    assert "tok/en" not in repr(FOR_A_WHILE)
