"""Why a replica can't start, in words that a client may read: no folders, and nothing of a file.

Whoever asks for a model gets its reason; the whole of an error is the operator's, in the log.
"""

from typing import Final

from tiffin.errors import TiffinError
from tiffin.telemetry.folders import without_folders

MAX_REASON: Final = 600


def reason_of(error: Exception) -> str:
    """What kept a replica from starting: its own words where we wrote them, else what kind it is.

    Of a path its last name is left.
    """
    if isinstance(error, TiffinError):
        return without_folders(error.message)[:MAX_REASON]
    if isinstance(error, MemoryError):
        return "the machine has too little memory for it; the log has the details"
    if isinstance(error, ModuleNotFoundError):
        return f"it needs the module '{error.name}', which isn't installed"
    if isinstance(error, OSError) and error.strerror:
        return f"the system refused a file or a device: {error.strerror}; the log has the details"
    return f"it failed unexpectedly ({type(error).__name__}); the log has the details"
