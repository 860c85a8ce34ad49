"""`[server.vault]`, `[server.idempotency]`, `[server.cache]`: what is kept of content, and what
encrypts it."""

import msgspec

from tiffin.config.fields import Positive, Seconds


class MasterKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a master key is: at one of `key_env`, `key_file` and `key_command`, or nowhere.

    It is 32 bytes, as 64 hexadecimal digits or in base64.
    """

    key_env: str = ""
    key_file: str = ""
    key_command: list[str] = []

    @property
    def given(self) -> bool:
        """Whether there is one."""
        return bool(self.key_env or self.key_file or self.key_command)


class Vault(MasterKey, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[server.vault]`: the master key, by which the keys are wrapped that encrypt stored content.

    Where none is given, one is made in a file of the data folder. `previous` is the one before, for
    as long as something is wrapped by it.
    """

    previous: MasterKey = MasterKey()


class Idempotency(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[server.idempotency]`: how long keys and their answers are kept, and how many at most.

    The answer to a request that is over `max_answer_bytes` isn't kept, and the request isn't run
    again under its key.
    """

    keep_s: Seconds = 86_400.0
    max_keys: Positive = 100_000
    max_bytes: Positive = 1_073_741_824
    max_tenant_keys: Positive = 10_000
    max_tenant_bytes: Positive = 268_435_456
    max_answer_bytes: Positive = 2_097_152


class AnswerCache(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[server.cache]`: how much is kept of answers that may be given again, all tenants together.

    Where there is no room the oldest of the tenant goes that has most. An answer over
    `max_answer_bytes` isn't kept.
    """

    max_entries: Positive = 100_000
    max_bytes: Positive = 1_073_741_824
    max_answer_bytes: Positive = 1_048_576
