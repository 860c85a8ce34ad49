"""Keys that calls to upstreams are signed with: whether they can be, before they have to."""

from collections.abc import Mapping

from tiffin.config.environ import environment
from tiffin.config.remote import RemoteModel
from tiffin.config.schema import Config
from tiffin.config.secrets import usual_secret
from tiffin.dialects.aws.credentials import read_credentials
from tiffin.dialects.google.credentials import is_file, read_account
from tiffin.errors import ConfigInvalid
from tiffin.types.profiles import profile_of


def check_signing_keys(config: Config, keys: Mapping[str, str]) -> None:
    """Raise `ConfigInvalid` where a model's calls can't be signed with the key that it has."""
    for model_name, model in config.models.items():
        signs = profile_of(model.profile).signs if isinstance(model, RemoteModel) else ""
        if not isinstance(model, RemoteModel) or not signs:
            continue
        for name, below, _ in model.every_key(model_name):
            try:
                _check(signs, keys[name], config)
            except ConfigInvalid as cause:
                raise ConfigInvalid(cause.message, where=f"models.{model_name}{below}") from None


def _check(signs: str, key: str, config: Config) -> None:
    if signs == "aws":
        read_credentials(key, environment())
        return
    text = key or usual_secret(signs)
    if is_file(text):
        read_account(text, config.egress.allow)
