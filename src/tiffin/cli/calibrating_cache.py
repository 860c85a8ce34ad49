"""`tiffin cache calibrate`: thresholds for a semantic cache, from labelled pairs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from tiffin.app.pairs import Pair, sample_pairs
from tiffin.app.thresholds import Verdict, trials, verdicts
from tiffin.cli.connect import Address
from tiffin.errors import InvalidRequest, UpstreamFailed

AT_ONCE: Final = 128
TIMEOUT_S: Final = 300.0
MAX_BYTES: Final = 64 * 1024 * 1024


def calibrate(server: Address, embedder: str, path: Path | None, *, as_json: bool) -> None:
    """Embed, learn, print; raises `InvalidRequest` for pairs that aren't, and what a call does."""
    pairs = read_pairs(path) if path else sample_pairs()
    found = verdicts(trials(pairs, lambda texts: vectors(server, embedder, texts)))
    if as_json:
        print(json.dumps([one._asdict() for one in found], indent=2, ensure_ascii=False))
        return
    print("\n".join([*table(found), "", *section(embedder, found)]))


def read_pairs(path: Path) -> list[Pair]:
    """Pairs, one as JSON in a line; raises `InvalidRequest`, which names the line."""
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise InvalidRequest(f"{path} has {size} bytes; at most {MAX_BYTES} are read")
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise InvalidRequest(f"{path} can't be read: {error.strerror}") from error
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(msgspec.json.decode(line, type=Pair))
        except msgspec.DecodeError as error:
            raise InvalidRequest(
                f"{path}, line {number}: {error}; a line is"
                ' {"a": "…", "b": "…", "same": true, "language": "en"}'
            ) from error
    if not found:
        raise InvalidRequest(f"{path} has no pairs")
    return found


def vectors(server: Address, embedder: str, texts: Sequence[str]) -> list[list[float]]:
    """The vectors that a running server's model makes of texts."""
    found: list[list[float]] = []
    for start in range(0, len(texts), AT_ONCE):
        some = texts[start : start + AT_ONCE]
        body = {"model": embedder, "input": list(some)}
        rows = server.call("POST", "/v1/embeddings", body, timeout_s=TIMEOUT_S)["data"]
        if len(rows) != len(some):
            raise UpstreamFailed(f"'{embedder}' made {len(rows)} vectors of {len(some)} texts")
        found += (row["embedding"] for row in sorted(rows, key=lambda row: int(row["index"])))
    return found


def table(found: Sequence[Verdict]) -> list[str]:
    """The verdicts as lines for a terminal."""
    rows = [("language", "same", "differ", "threshold", "false hits", "recall", "vectors alone")]
    for one in found:
        threshold = "off" if one.threshold is None else f"{one.threshold:.3f}"
        counts = (str(one.same), str(one.near), threshold, str(one.false_hits))
        rows.append((one.language, *counts, f"{one.recall:.0%}", f"{one.vectors_alone} false"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return [*lines, *(f"{one.language} is off: {one.why}" for one in found if one.why)]


def section(embedder: str, found: Sequence[Verdict]) -> list[str]:
    """The setting to paste, for those that aren't off."""
    safe = [f"{one.language} = {one.threshold}" for one in found if one.threshold is not None]
    if not safe:
        return ["no language is safe: leave the semantic cache off"]
    return [
        "[models.NAME.cache.semantic]",
        f'embedder = "{embedder}"',
        f"thresholds = {{ {', '.join(safe)} }}",
    ]
