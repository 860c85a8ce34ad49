"""The command `tiffin`: what can be said on the command line, and how failures are shown.

Exit codes: 0 done · 1 it failed, and the message says why · 2 the command line is wrong ·
3 no server answers · 130 interrupted.
"""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from tiffin.cli import (
    budgets,
    caching,
    configuring,
    costs,
    keeping,
    keys,
    limiting,
    requests,
    tenancy,
    wide,
)
from tiffin.cli.options import (
    ApiKey,
    AsJson,
    ConfigFile,
    DataFolder,
    ModelName,
    Url,
    model_names,
)

EXIT_FAILED = 1
EXIT_UNREACHABLE = 3
EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="tiffin",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
models = typer.Typer(no_args_is_help=True, help="Bring, fetch and look at models.")
app.add_typer(models, name="models")


app.command("apply")(configuring.apply)
app.add_typer(configuring.config, name="config")
app.add_typer(tenancy.tenants, name="tenants")
app.add_typer(tenancy.projects, name="projects")
app.add_typer(keys.keys, name="keys")
app.add_typer(tenancy.audit, name="audit")
app.add_typer(requests.requests, name="requests")
app.add_typer(costs.cost, name="cost")
app.add_typer(caching.cache, name="cache")
app.command("budgets")(budgets.budgets)
app.command("usage")(budgets.usage)
app.add_typer(keeping.vault, name="vault")
app.command("limits")(limiting.limits)
app.command("infer")(wide.infer)
app.command("upgrade")(wide.upgrade)
models.command("import")(wide.import_model)


@app.callback()
def tiffin(
    ca: Annotated[
        str, typer.Option("--ca", envvar="TIFFIN_CA", help="Authorities of a server's certificate.")
    ] = "",
    cert: Annotated[
        str, typer.Option("--cert", envvar="TIFFIN_CERT", help="Our own certificate and its key.")
    ] = "",
) -> None:
    """The right model, on time, at a known cost.

    Tiffin serves models to OpenAI clients and accounts for every request. Begin with:

        tiffin serve
        tiffin chat "Hello"

    Exit codes: 0 done, 1 failed, 2 wrong command line, 3 no server answers, 130 interrupted.
    """
    if ca or cert:
        from tiffin.config.environ import set_variables

        set_variables({"TIFFIN_CA": ca, "TIFFIN_CERT": cert})


@app.command()
def version() -> None:
    """Show the versions of Tiffin, of Python and of the engine.

    Example:

        tiffin version
    """
    import platform
    from importlib import metadata

    print(f"tiffin    {metadata.version('tiffin')}")
    print(f"python    {platform.python_version()}")
    print(f"llama.cpp {metadata.version('xllamacpp')} (xllamacpp)")


@app.command()
def init(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("tiffin.toml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that exists.")] = False,
    extras: Annotated[
        list[str], typer.Option("--with", help="Add the models of an extra: ocr.")
    ] = [],  # noqa: B006 - typer makes a new one for each call
) -> None:
    """Write a tiffin.toml in which every setting is explained.

    Examples:

        tiffin init
        tiffin init production.toml
        tiffin init --with ocr
        tiffin init --force
    """
    from tiffin.cli.files import write_template

    write_template(path, overwrite=force, extras=extras)
    print(f"Wrote {path}. Next: tiffin check {path}")


@app.command()
def check(
    path: Annotated[
        Path | None, typer.Argument(help="The file; without it, as `tiffin serve` finds it.")
    ] = None,
) -> None:
    """Say whether a configuration is right, and show what it comes to.

    Prints the whole configuration with defaults and environment variables applied, without
    secrets, its hash, and every limit that it comes to. Nothing is started or fetched.

    Examples:

        tiffin check
        tiffin check production.toml
        TIFFIN__SERVER__PORT=9000 tiffin check
    """
    from tiffin.cli.files import resolved

    print(resolved(path))


@app.command()
def serve(
    config: ConfigFile = None,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "",
    port: Annotated[
        int | None, typer.Option("--port", "-p", help="The port; 0 takes a free one.")
    ] = None,
    data: DataFolder = None,
    handover: Annotated[int, typer.Option("--handover", hidden=True)] = -1,
) -> None:
    """Serve until Ctrl-C.

    Without a configuration file it serves the starter models: chat-tiny, ready in seconds, and
    chat, half a gigabyte that is fetched once. The API key is printed and kept in the data folder;
    TIFFIN_API_KEY, where it is set, becomes the key.

    Examples:

        tiffin serve
        tiffin serve --port 9000
        tiffin serve --config production.toml
        TIFFIN__SERVER__PORT=9000 tiffin serve
    """
    from tiffin.cli.serving import serve_here

    serve_here(config, host=host, port=port, data=data, handover=handover)


@app.command()
def status(
    url: Url = "",
    key: ApiKey = "",
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show what runs: processes, models, downloads, accounts.

    Examples:

        tiffin status
        tiffin status --json
    """
    from tiffin.cli.admin import show_status

    show_status(url=url, key=key, data=data, as_json=as_json)


@app.command()
def machine(as_json: AsJson = False) -> None:
    """Show what this machine computes with: the processor, and GPUs by the names that models take.

    It needs no running server. GPUs are seen with `pip install 'tiffin[nvidia]'`.

    Examples:

        tiffin machine
        tiffin machine --json
    """
    from tiffin.cli.machine import show_machine

    show_machine(as_json=as_json)


@app.command()
def chat(
    prompt: Annotated[
        str, typer.Argument(help="What to say; without it, a conversation.", show_default=False)
    ] = "",
    model: Annotated[
        str, typer.Option("--model", "-m", help="The model or route.", autocompletion=model_names)
    ] = "",
    system: Annotated[str, typer.Option("--system", "-s", help="Instructions for it.")] = "",
    url: Url = "",
    key: ApiKey = "",
    data: DataFolder = None,
) -> None:
    """Talk to a model of the running server; answers are streamed.

    Without a prompt it is a conversation: Ctrl-C stops an answer, Ctrl-D ends. What is piped in
    goes before the prompt.

    Examples:

        tiffin chat "Name three colours."
        tiffin chat --model chat-tiny
        git diff | tiffin chat "Write a commit message for this."
    """
    from tiffin.cli.chat import Conversation, default_model, talk
    from tiffin.cli.locate import server

    address = server(url=url, key=key, data=data)
    conversation = Conversation(address, model or default_model(address))
    if system:
        conversation.messages.append({"role": "system", "content": system})
    talk(conversation, prompt)


@models.command("list")
def models_list(url: Url = "", key: ApiKey = "", data: DataFolder = None) -> None:
    """List the models of the running server, by the names that clients use.

    Example:

        tiffin models list
    """
    from tiffin.cli.admin import list_models

    list_models(url=url, key=key, data=data)


@models.command("unload")
def models_unload(
    name: ModelName, url: Url = "", key: ApiKey = "", data: DataFolder = None
) -> None:
    """Take a model off the running server until it is loaded again, over restarts too.

    Its running answers finish, then its process ends and its memory is free.

    Example:

        tiffin models unload chat
    """
    from tiffin.cli.admin import switch_model

    print(switch_model(name, "unload", url=url, key=key, data=data))


@models.command("load")
def models_load(name: ModelName, url: Url = "", key: ApiKey = "", data: DataFolder = None) -> None:
    """Run a model again that was unloaded.

    Example:

        tiffin models load chat
    """
    from tiffin.cli.admin import switch_model

    print(switch_model(name, "load", url=url, key=key, data=data))


@models.command("restart")
def models_restart(
    name: ModelName, url: Url = "", key: ApiKey = "", data: DataFolder = None
) -> None:
    """Replace a model's processes by new ones of the same kind, without a gap.

    The old ones answer until all of the new ones are ready, then finish what they had begun.

    Example:

        tiffin models restart chat
    """
    from tiffin.cli.admin import switch_model

    print(switch_model(name, "restart", url=url, key=key, data=data))


@models.command("calibrate")
def models_calibrate(
    name: Annotated[str, typer.Argument(help="The model's name.", autocompletion=model_names)],
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure only what the choice depends on.")
    ] = False,
    config: ConfigFile = None,
    data: DataFolder = None,
) -> None:
    """Measure which engine runs a GGUF language model best here, and keep that.

    It takes up to a minute, and the processor: best while nobody asks anything. A model with
    engine = "auto" is run by the one that was chosen.

    Example:

        tiffin models calibrate chat-tiny
    """
    from tiffin.cli.calibrating import calibrate_model

    calibrate_model(name, config, data, quick=quick)


@models.command("show")
def models_show(
    name: Annotated[str, typer.Argument(help="The model's name.", autocompletion=model_names)],
    config: ConfigFile = None,
) -> None:
    """Show a configured model: what runs it, where its file comes from, whether it is here.

    Example:

        tiffin models show chat-tiny
    """
    from tiffin.cli.files import show_model

    show_model(name, config)


@models.command("pull")
def models_pull(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="The models; without a name, all of them.", autocompletion=model_names),
    ] = None,
    config: ConfigFile = None,
    data: DataFolder = None,
) -> None:
    """Fetch the files of models before they are needed, for example for a start without network.

    Each file is checked against its sha256. An interrupted download goes on where it stopped.

    Examples:

        tiffin models pull
        tiffin models pull chat-tiny
    """
    from tiffin.cli.pulling import pull_models

    pull_models(names or [], config, data)


def run() -> None:
    """The entry point: a failure becomes one line with the mend, and an exit code."""
    from tiffin.cli.connect import Refused, Unreachable
    from tiffin.errors import TiffinError

    try:
        app()
    except Unreachable as failure:
        _fail(str(failure), EXIT_UNREACHABLE)
    except (TiffinError, Refused) as failure:
        _fail(str(failure), EXIT_FAILED)
    except BrokenPipeError:
        # Whoever read our output has left. Python's own last flush must not try it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def _fail(message: str, code: int) -> None:
    text = " ".join(message.split())
    red, plain = ("\033[31m", "\033[0m") if sys.stderr.isatty() else ("", "")
    print(f"{red}tiffin: {text}{plain}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    run()
