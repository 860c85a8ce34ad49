"""Keys of AWS in the forms that they are kept in; nothing that is wrong with one repeats it."""

from collections.abc import Mapping
from configparser import ConfigParser
from configparser import Error as NoFile
from typing import Final

import msgspec

from tiffin.dialects.aws.signature import Credentials
from tiffin.errors import ConfigInvalid

_VARIABLES: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_NAMES: Final = tuple(name.lower() for name in _VARIABLES)
FORMS: Final = (
    "ACCESS_KEY_ID:SECRET_ACCESS_KEY, with :SESSION_TOKEN where there is one, what a"
    " credential_process prints, or a shared credentials file with one profile, or a default one"
)


class _Printed(msgspec.Struct):
    """What a `credential_process` prints."""

    access: str = msgspec.field(name="AccessKeyId")
    secret: str = msgspec.field(name="SecretAccessKey")
    token: str | None = msgspec.field(name="SessionToken", default=None)


def read_credentials(text: str, environ: Mapping[str, str]) -> Credentials:
    """The keys that a text holds, or, where it is empty, the usual variables of `environ`.

    Raises `ConfigInvalid`.
    """
    if not text:
        found = [environ.get(name, "").strip() for name in _VARIABLES]
        if not (found[0] and found[1]):
            raise ConfigInvalid(
                "it has no keys: give key_env, key_file or key_command, or set"
                f" {_VARIABLES[0]} and {_VARIABLES[1]}"
            )
    else:
        found = _parts(text)
    if not (found[0] and found[1]) or any(not _plain(part) for part in found):
        raise ConfigInvalid(f"expected keys of AWS: {FORMS}")
    return Credentials(*found)


def _parts(text: str) -> list[str]:
    if text.startswith("{"):
        try:
            printed = msgspec.json.decode(text, type=_Printed)
        except msgspec.DecodeError:
            return ["", ""]
        return [printed.access, printed.secret, printed.token or ""]
    if text.startswith(("[", "#", ";")):
        return _from_file(text)
    parts = text.split(":")
    return parts if len(parts) in (2, 3) else ["", ""]


def _from_file(text: str) -> list[str]:
    file = ConfigParser(interpolation=None, default_section="")
    try:
        file.read_string(text)
    except NoFile:
        return ["", ""]
    names = file.sections()
    name = names[0] if len(names) == 1 else "default"
    if name not in names:
        return ["", ""]
    return [file[name].get(key, "").strip() for key in _NAMES]


def _plain(part: str) -> bool:
    return all("!" <= letter <= "~" for letter in part)
