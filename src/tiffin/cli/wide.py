"""The commands with many options; typer takes options as the parameters of one function."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from tiffin.cli.options import ApiKey, AsJson, DataFolder, Url, model_names


def import_model(  # noqa: PLR0913 - options
    path: Annotated[Path, typer.Argument(help="The model: a file or a folder.")],
    name: Annotated[str, typer.Option("--name", "-n", help="What clients will call it.")],
    kind: Annotated[
        str, typer.Option("--kind", help="What it is, where its content doesn't say it.")
    ] = "",
    sample: Annotated[
        Path | None,
        typer.Option("--sample", help="Rows to check it on: a CSV with names, or .npy."),
    ] = None,
    threshold: Annotated[
        float | None, typer.Option("--threshold", help="From which score on it decides yes.")
    ] = None,
    labels: Annotated[
        str, typer.Option("--labels", help='What no and yes are called: "ok,fraud".')
    ] = "",
    features: Annotated[
        str, typer.Option("--features", help="The names of its columns, with commas between.")
    ] = "",
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="The configuration to write to; ./tiffin.toml."),
    ] = None,
    data: DataFolder = None,
    trusted: Annotated[
        bool, typer.Option("--trusted", help="Its code may run: pickles and Python classes.")
    ] = False,
    apply: Annotated[
        bool | None,
        typer.Option("--apply/--no-apply", help="Give it to the running server, or don't."),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Put it in the place of a model of this name.")
    ] = False,
) -> None:
    """Make a model of yours one that is served: found out, converted, checked, configured.

    Kinds: onnx, sklearn, xgboost, lightgbm, safetensors (text encoders), gguf, huggingface, mlflow,
    python. Models of scikit-learn, XGBoost and LightGBM become ONNX, and are refused where they
    don't answer as the original on the sample. Its section is added to the configuration, which
    is applied where the running server has this one.

    Examples:

        tiffin models import fraud.onnx --name fraud
        tiffin models import fraud.joblib --name fraud --trusted --sample rows.csv --threshold 0.3
        tiffin models import churn.json --name churn --labels stays,leaves
        tiffin models import ./all-MiniLM-L6-v2 --name minilm
        tiffin models import llama.gguf --name llama
        tiffin models import mine.py --name mine --trusted
    """
    import tempfile

    from tiffin.adapters.importers.order import Order
    from tiffin.cli.importing import Wish, import_model, two_labels

    order = Order(
        path=path,
        scratch=Path(tempfile.gettempdir()),
        trusted=trusted,
        sample=sample,
        features=tuple(one.strip() for one in features.split(",")) if features else (),
        labels=two_labels(labels) if labels else None,
        threshold=threshold,
    )
    wish = Wish(name=name, kind=kind, config=config, data=data, replace=replace, apply=apply)
    for line in import_model(order, wish):
        print(line)


def infer(  # noqa: PLR0913 - options
    model: Annotated[str, typer.Argument(help="The model.", autocompletion=model_names)],
    given: Annotated[
        str, typer.Argument(help="Inputs as JSON, a file of it, or -.", show_default=False)
    ] = "",
    csv: Annotated[Path | None, typer.Option("--csv", help="Rows in a file.")] = None,
    row: Annotated[
        list[str] | None, typer.Option("--row", help="A row of numbers, with commas between.")
    ] = None,
    image: Annotated[
        Path | None, typer.Option("--image", help="A picture, or a document for one that reads it.")
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option("--text", help="A text to embed or rank; may be repeated.")
    ] = None,
    query: Annotated[str, typer.Option("--query", help="What texts are ranked by.")] = "",
    explain: Annotated[
        bool, typer.Option("--explain", help="Ask for the decision, its score, its reasons.")
    ] = False,
    as_json: AsJson = False,
    url: Url = "",
    key: ApiKey = "",
    data: DataFolder = None,
) -> None:
    """Ask a model of the running server for an answer that isn't a chat.

    JSON is a list for the only input, {"input": [...]} by name, or a whole request of the Open
    Inference Protocol. Columns of a CSV are found by the names that the configuration here gives
    the model's features, else taken in their order.

    Examples:

        tiffin infer credit-default --row 2,1,50000,15000 --explain
        tiffin infer credit-default --csv rows.csv
        tiffin infer fraud '[[0.1, 3, 7]]' --json
        tiffin infer embed --text "A first text" --text "and another"
        tiffin infer rerank --query "the capital" --text "Paris is." --text "Bread is."
        tiffin infer ocr --image invoice.png
    """
    from tiffin.cli.infer import Given, infer_model
    from tiffin.cli.locate import server

    inputs = Given(
        text=given,
        csv=csv,
        rows=tuple(row or ()),
        image=image,
        texts=tuple(text or ()),
        query=query,
        explain=explain,
    )
    address = server(url=url, key=key, data=data)
    for line in infer_model(address, model, inputs, as_json=as_json):
        print(line)


def upgrade(
    python: Annotated[
        Path | None,
        typer.Option("--python", help="The interpreter beside which the new Tiffin is installed."),
    ] = None,
    data: DataFolder = None,
) -> None:
    """Have the running server become the Tiffin that this command belongs to, without a gap.

    The server's process stays, requests that run finish, and the public socket passes on. What
    can't start, or can't read the configuration, is refused before anything changes. Models whose
    processes are of another version are then replaced one after another.

    Examples:

        tiffin upgrade
        /opt/tiffin-2/bin/tiffin upgrade
        tiffin upgrade --python /opt/tiffin-2/bin/python
    """
    from tiffin.cli.upgrading import upgrade_here

    upgrade_here(str(python.absolute()) if python else sys.executable, data)
