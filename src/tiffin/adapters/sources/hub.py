"""`hf:org/repo@revision/path/file.gguf`: a file of the Hugging Face hub, by its resolve address."""

import re
from urllib.parse import quote

from tiffin.adapters.sources.web import WebSource
from tiffin.errors import ConfigInvalid
from tiffin.ports.artifacts import Landing

PUBLIC_HUB = "https://huggingface.co"
_ADDRESS = re.compile(r"hf:([\w.-]+/[\w.-]+)(?:@([\w.-]+))?/([^/?#][^?#]*)")


class HubSource:
    """Files of a hub at `base`; the token, if any, goes to that host alone.

    No hub was reachable where this was built: the protocol is tested against a loopback stand-in.
    """

    def __init__(self, web: WebSource, *, base: str = PUBLIC_HUB, token: str = "") -> None:
        self._web = web
        self._base = base.rstrip("/")
        self._token = token

    def check(self, uri: str) -> None:
        """The shape of the address; the revision may be left out and is then `main`."""
        self._web.check(self._url(uri))

    def fetch(self, uri: str, landing: Landing) -> None:
        """Download, resumable, following the hub's redirects."""
        self._web.download(self._url(uri), landing, token=self._token)

    def _url(self, uri: str) -> str:
        match = _ADDRESS.fullmatch(uri)
        if match is None:
            raise ConfigInvalid("expected hf:organisation/repository@revision/file", where=uri)
        repository, revision, path = match.groups()
        return f"{self._base}/{repository}/resolve/{revision or 'main'}/{quote(path)}"
