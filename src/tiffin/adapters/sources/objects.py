"""`s3://bucket/key`, `gs://bucket/key` and `az://container/key`: object stores, through obstore."""

import asyncio
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tiffin.adapters.sources.interrupt import interruptible
from tiffin.errors import ArtifactError, ConfigInvalid
from tiffin.ports.artifacts import Landing

if TYPE_CHECKING:
    from obstore.store import ObjectStore, RetryConfig

RANGE_BYTES = 8 << 20
_ADDRESS = re.compile(r"(s3|gs|az)://([^/?#]+)/([^?#]+)")
RETRIES = 3
RETRY_S = 60.0


class ObjectSource:
    """Objects by ranges, each marked as it comes, all of one ETag.

    Endpoint and credentials come from the environment that the clouds' own tools read
    (`AWS_…`, `GOOGLE_…`, `AZURE_…`, instance roles); `options` are obstore's and go before it.
    Only `s3:` was tried against a real server; `gs:` and `az:` against loopback stand-ins.
    """

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self._options = dict(options or {})

    def check(self, uri: str) -> None:
        """The shape of the address."""
        _address(uri)

    def fetch(self, uri: str, landing: Landing) -> None:
        """Bring the ranges that are missing."""
        scheme, bucket, key = _address(uri)
        from obstore.exceptions import BaseError

        try:
            store = _store(scheme, bucket, self._options)
            asyncio.run(interruptible(_bring(store, key, landing), landing.stop))
        except (BaseError, OSError, ValueError) as failure:
            raise ArtifactError(str(failure).partition("\n")[0]) from failure


async def _bring(store: "ObjectStore", key: str, landing: Landing) -> None:
    import obstore

    meta = await obstore.head_async(store, key)
    etag = meta["e_tag"]
    if not etag or landing.note != etag:
        landing.restart()
    landing.expect(meta["size"] - landing.offset, last=True)
    while landing.offset < meta["size"]:
        end = min(landing.offset + RANGE_BYTES, meta["size"])
        result = await obstore.get_async(
            store, key, options={"range": (landing.offset, end), "if_match": etag}
        )
        landing.write(memoryview(await result.bytes_async()))
        landing.mark(etag or "")


def _store(scheme: str, bucket: str, options: dict[str, Any]) -> "ObjectStore":
    from obstore.store import AzureStore, GCSStore, S3Store

    kinds: dict[str, type[S3Store] | type[GCSStore] | type[AzureStore]]
    kinds = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
    retries: RetryConfig = {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_S)}
    return kinds[scheme](bucket, retry_config=retries, **options)


def _address(uri: str) -> tuple[str, str, str]:
    match = _ADDRESS.fullmatch(uri)
    if match is None:
        raise ConfigInvalid(
            "expected s3://bucket/key, gs://bucket/key or az://container/key", where=uri
        )
    scheme, bucket, key = match.groups()
    return scheme, bucket, key
