"""The ONNX graph of a BERT-like text encoder, built from its weights with nothing but onnx.

In: `input_ids`, `attention_mask` and, where the family has them, `token_type_ids`, INT64[N,T].
Out: `last_hidden_state` FP32[N,T,H], or `logits` FP32[N,1] of a reranker.
After Devlin et al., "BERT" (2019), as huggingface/transformers computes it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiffin.adapters.importers.encoder_shape import EncoderShape
from tiffin.adapters.importers.weights import Weights

OPSET = 17
MASKED = float(np.finfo(np.float32).min)


def graph_of(shape: EncoderShape, weights: Weights, prefix: str) -> Any:
    """An onnx ModelProto; `prefix` stands before the encoder's tensors in the file."""
    from onnx import TensorProto, helper

    graph = _Graph()
    build = _Encoder(graph, shape, weights, prefix)
    hidden = build.encoder()
    name: str = "last_hidden_state"
    sizes: list[str | int | None] = ["N", "T", shape.hidden]
    if shape.score:
        hidden, name, sizes = build.score(hidden), "logits", ["N", 1]
    graph.nodes.append(helper.make_node("Identity", [hidden], [name]))
    inputs = ["input_ids", "attention_mask", *(["token_type_ids"] if shape.types else [])]
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            shape.family,
            [helper.make_tensor_value_info(one, TensorProto.INT64, ["N", "T"]) for one in inputs],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes)],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        producer_name="tiffin",
    )
    model.ir_version = 8
    return model


class _Graph:
    """Nodes and constants as they are added; a constant of a name is added once."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._known: set[str] = set()

    def constant(self, name: str, value: NDArray[Any]) -> str:
        from onnx import numpy_helper

        if name not in self._known:
            self._known.add(name)
            self.constants.append(numpy_helper.from_array(value, name))
        return name

    def ints(self, *values: int) -> str:
        name = "i" + "_".join(str(value) for value in values)
        return self.constant(name, np.array(values, np.int64))

    def number(self, value: float) -> str:
        return self.constant(f"f{value!r}", np.array(value, np.float32))

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        from onnx import helper

        output = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output


class _Encoder:
    """The parts of one encoder, each returning the name of what it computes."""

    def __init__(self, graph: _Graph, shape: EncoderShape, weights: Weights, prefix: str) -> None:
        self._graph = graph
        self._shape = shape
        self._weights = weights
        self._prefix = prefix

    def encoder(self) -> str:
        x = self._embedded()
        unseen = self._unseen()
        for number in range(self._shape.layers):
            x = self._layer(x, unseen, self._shape.names["layer"].format(number))
        return x

    def score(self, hidden: str) -> str:
        """From the first token to one number, by the head that the family has."""
        graph = self._graph
        first = graph.add("Gather", hidden, graph.constant("first", np.array(0, np.int64)), axis=1)
        if "classifier.dense.weight" in self._weights:  # RoBERTa
            inner = graph.add("Tanh", self._linear(first, "classifier.dense", own=False))
            return self._linear(inner, "classifier.out_proj", own=False)
        if "pre_classifier.weight" in self._weights:  # DistilBERT
            inner = graph.add("Relu", self._linear(first, "pre_classifier", own=False))
        else:
            inner = graph.add("Tanh", self._linear(first, "pooler.dense"))
        return self._linear(inner, "classifier", own=False)

    def _embedded(self) -> str:
        graph, names = self._graph, self._shape.names
        x = graph.add("Gather", self._table(names["word"]), "input_ids")
        if self._shape.types:
            types = graph.add("Gather", self._table(names["type"]), "token_type_ids")
            x = graph.add("Add", x, types)
        positions = self._table(names["position"])
        x = graph.add("Add", x, graph.add("Gather", positions, self._positions()))
        return self._normed(x, names["norm"])

    def _positions(self) -> str:
        """0, 1, 2 …; RoBERTa counts only tokens that aren't padding, from its own first on."""
        graph = self._graph
        if not self._shape.first_position:
            length = graph.add("Gather", graph.add("Shape", "input_ids"), graph.ints(1))
            scalar = graph.add("Squeeze", length, graph.ints(0))
            zero = graph.constant("zero", np.array(0, np.int64))
            one = graph.constant("one", np.array(1, np.int64))
            return graph.add("Range", zero, scalar, one)
        padding = graph.constant("padding", np.array(self._shape.padding, np.int64))
        is_padding = graph.add("Equal", "input_ids", padding)
        real = graph.add("Cast", graph.add("Not", is_padding), to=7)  # INT64
        counted = graph.add("Mul", graph.add("CumSum", real, graph.ints(1)), real)
        return graph.add("Add", counted, padding)

    def _unseen(self) -> str:
        """0 for tokens to look at, a very small number for padding: [N,1,1,T]."""
        graph = self._graph
        mask = graph.add("Unsqueeze", "attention_mask", graph.ints(1, 2))
        gone = graph.add("Sub", graph.number(1.0), graph.add("Cast", mask, to=1))  # FLOAT
        return graph.add("Mul", gone, graph.number(MASKED))

    def _layer(self, x: str, unseen: str, layer: str) -> str:
        graph, names = self._graph, self._shape.names
        scale = graph.number(float(np.sqrt(self._shape.hidden // self._shape.heads)))
        query = self._split(x, layer + names["query"], (0, 2, 1, 3))
        key = self._split(x, layer + names["key"], (0, 2, 3, 1))
        value = self._split(x, layer + names["value"], (0, 2, 1, 3))
        scores = graph.add("Div", graph.add("MatMul", query, key), scale)
        shares = graph.add("Softmax", graph.add("Add", scores, unseen), axis=-1)
        mixed = graph.add("Transpose", graph.add("MatMul", shares, value), perm=(0, 2, 1, 3))
        whole = graph.add("Reshape", mixed, graph.ints(0, 0, self._shape.hidden))
        told = self._linear(whole, layer + names["mixed"])
        x = self._normed(graph.add("Add", told, x), layer + names["mixed_norm"])
        up = self._active(self._linear(x, layer + names["up"]))
        down = self._linear(up, layer + names["down"])
        return self._normed(graph.add("Add", down, x), layer + names["down_norm"])

    def _split(self, x: str, name: str, order: Sequence[int]) -> str:
        """[N,T,H] through a linear map into heads."""
        heads = self._shape.heads
        sizes = self._graph.ints(0, 0, heads, self._shape.hidden // heads)
        return self._graph.add(
            "Transpose", self._graph.add("Reshape", self._linear(x, name), sizes), perm=order
        )

    def _active(self, x: str) -> str:
        graph = self._graph
        if self._shape.activation == "relu":
            return graph.add("Relu", x)
        half, one = graph.number(0.5), graph.number(1.0)
        if self._shape.activation == "gelu":
            inner = graph.add("Erf", graph.add("Div", x, graph.number(float(np.sqrt(2.0)))))
        else:  # by tanh, as Hendrycks & Gimpel's approximation has it
            cube = graph.add("Mul", graph.add("Mul", x, x), x)
            bent = graph.add("Add", x, graph.add("Mul", cube, graph.number(0.044715)))
            inner = graph.add(
                "Tanh", graph.add("Mul", bent, graph.number(float(np.sqrt(2.0 / np.pi))))
            )
        return graph.add("Mul", graph.add("Mul", x, graph.add("Add", inner, one)), half)

    def _linear(self, x: str, name: str, *, own: bool = True) -> str:
        graph, full = self._graph, (self._prefix if own else "") + name
        turned = np.ascontiguousarray(self._weights[f"{full}.weight"].T)
        product = graph.add("MatMul", x, graph.constant(f"{full}.weight", turned))
        return graph.add("Add", product, self._table(f"{name}.bias", own=own))

    def _normed(self, x: str, name: str) -> str:
        return self._graph.add(
            "LayerNormalization",
            x,
            self._table(f"{name}.weight"),
            self._table(f"{name}.bias"),
            axis=-1,
            epsilon=self._shape.epsilon,
        )

    def _table(self, name: str, *, own: bool = True) -> str:
        full = (self._prefix if own else "") + name
        return self._graph.constant(full, self._weights[full])
