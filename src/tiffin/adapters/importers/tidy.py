"""What converters leave in a graph and servers can't use, taken out of it."""

from typing import Any


def tidied(model: Any) -> list[str]:
    """Change an onnx ModelProto in place, and say what was changed.

    Maps of probabilities become the tensors that they were made of (ZipMap); the first dimension of
    a tabular model's inputs and outputs is free, as it is in truth where converters wrote 1.
    """
    notes = []
    if replaced := _without_zipmap(model.graph):
        notes.append(f"the map {', '.join(replaced)} became the tensor that it was made of")
    return notes


def free_rows(model: Any) -> None:
    """Let the first dimension of every input and output have any size."""
    for value in (*model.graph.input, *model.graph.output):
        shape = value.type.tensor_type.shape
        if shape.dim:
            shape.dim[0].ClearField("dim_value")
            shape.dim[0].dim_param = "N"


def _without_zipmap(graph: Any) -> list[str]:
    from onnx import TensorProto, helper

    maps = [node for node in graph.node if node.op_type == "ZipMap"]
    for node in maps:
        [name] = node.output
        width = max((len(found.ints) or len(found.strings) for found in node.attribute), default=0)
        graph.node.append(helper.make_node("Identity", [node.input[0]], [name], name=f"{name}_"))
        graph.node.remove(node)
        for value in graph.output:
            if value.name == name:
                shape = ["N", width or None]
                tensor = helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
                value.CopyFrom(tensor)
    return [node.output[0] for node in maps]
