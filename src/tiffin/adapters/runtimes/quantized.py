"""Whether rows of a graph depend on what runs beside them, told by the operators in its file."""

import mmap
from pathlib import Path

# These take one scale from everything that is given, so that a row's numbers change with those
# beside it, and with its padding: by 0.01 in a vector of bge-small, by 0.2 in a reranker's logit.
_BY_BATCH = (b"DynamicQuantizeLinear", b"DynamicQuantizeMatMul", b"DynamicQuantizeLSTM")


def scales_by_batch(graph: Path) -> bool:
    """Whether the file's graph quantizes by what it is given; raises `OSError`.

    A name in a file is enough: a graph that only mentions one runs row by row, and as right.
    """
    with graph.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return any(content.find(name) >= 0 for name in _BY_BATCH)
