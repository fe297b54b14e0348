"""The command line: parse, call the library, print, exit.

``mdh-lift [global options] VERB [arguments]``; without a verb, the main job on the named files.  Global
options may stand before or after the verb; what follows ``--`` is the compile command.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click
from click.core import ParameterSource

from frontend_c.directives import ACCEPTED
from lifter.annotations import TARGETS
from lowering.device import DEVICES
from mdh_core.diagnostics import CODES
from mdh_lift import verbs
from mdh_lift.compile_command import DatabaseError
from mdh_lift.config import ConfigurationError
from mdh_lift.session import FORMATS, Session
from mdh_lift.version import VERSION
from tuning.budget import STRATEGIES, parse_budget

NOT_YET = {
    "report": "an HTML report",
    "lsp": "the language server",
    "port": "tuning a whole tree",
}


# --------------------------------------------------------------------------- global options


def _session(ctx: click.Context) -> Session:
    return ctx.find_root().ensure_object(Session)


def _keep(ctx: click.Context, param: click.Parameter, value: object) -> None:
    """Store a global option in the session; the one after the verb wins."""
    if ctx.get_parameter_source(str(param.name)) is not ParameterSource.DEFAULT:
        setattr(_session(ctx), str(param.name), value)


def _change_directory(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value is None:
        return
    try:
        ctx.find_root().with_resource(contextlib.chdir(value))
    except OSError as error:
        raise click.BadParameter(f"{value}: {error.strerror}") from None


def _accept(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    words = [word.strip() for word in (value or "").split(",") if word.strip()]
    for word in words:
        if word not in ACCEPTED:
            raise click.BadParameter(f"`{word}` is none of {', '.join(ACCEPTED)}")
    _keep(ctx, param, words)


def _version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"mdh-lift {VERSION}")
        ctx.exit()


def global_options() -> list[click.Option]:
    """A fresh list of the options that every verb takes."""

    def option(*names: str, **rest: object) -> click.Option:
        return click.Option(names, expose_value=False, **({"callback": _keep} | rest))  # type: ignore[arg-type]

    return [
        option(
            "-C", "directory", metavar="DIR", callback=_change_directory, is_eager=True, help="Work in DIR."
        ),
        option("-p", "--build-dir", metavar="DIR", help="Where compile_commands.json is."),
        option("--config-file", metavar="FILE", help="Use this configuration file."),
        option("--isolated", is_flag=True, help="Ignore configuration files."),
        option("-j", "--jobs", type=click.IntRange(1), metavar="N", help="Compile N candidates at a time."),
        option("--format", "output_format", type=click.Choice(FORMATS), help="How diagnostics are printed."),
        option("-o", "--output", metavar="FILE", help="Write results to FILE."),
        option("--color", type=click.Choice(["auto", "always", "never"]), help="Colour the output."),
        option("--seed", type=click.IntRange(0), metavar="N", help="Seed of everything random (0)."),
        option(
            "--min-speedup",
            type=click.FloatRange(0),
            metavar="X",
            help="Splice only above this ratio (1.05).",
        ),
        option("--style", type=click.Choice(["inline"]), help="How the result stands in the source."),
        option(
            "--accept",
            metavar="scop,omp,acc",
            callback=_accept,
            help="Read these directives as well.",
        ),
        option("-q", "--quiet", is_flag=True, help="Errors only."),
        option("-v", "--verbose", count=True, help="Notes, too."),
        option("--version", is_flag=True, is_eager=True, callback=_version, help="Print the version."),
    ]


# --------------------------------------------------------------------------- command classes


class Verb(click.Command):
    """A command that takes the global options as well."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        taken = {name for p in self.params for name in p.opts}
        self.params += [o for o in global_options() if not taken & set(o.opts)]
        self.context_settings.setdefault("help_option_names", ["-h", "--help"])


class MainCommand(click.Group):
    """Verbs; files without a verb are the main job; the compile command stands after ``--``."""

    command_class = Verb

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            _session(ctx).compile_words = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        first = args[0]
        if first in self.commands:
            return super().resolve_command(ctx, args)
        if first in NOT_YET:
            raise click.UsageError(f"`{first}` ({NOT_YET[first]}) is not part of version {VERSION}", ctx)
        path = first.partition("::")[0]
        if first.startswith("-") or re.search(r"[./\\]", path) or Path(path).exists():
            return "", lift_files, args
        near = difflib.get_close_matches(first, self.commands, 1)
        hint = f"; did you mean `{near[0]}`?" if near else ""
        raise click.UsageError(f"no verb and no file is called `{first}`{hint}", ctx)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(130)
        except (ConfigurationError, DatabaseError) as error:
            raise click.UsageError(str(error), ctx) from None
        except Exception as error:
            if isinstance(error, OSError) and error.filename is None:
                raise  # what is printed cannot be written
            session = _session(ctx)
            session.crashed(error)
            ctx.exit(session.finish())


@click.group(
    cls=MainCommand,
    params=global_options(),
    context_settings={
        "help_option_names": ["-h", "--help"],
        "ignore_unknown_options": True,
        "max_content_width": 100,
    },
    options_metavar="[OPTIONS]",
    subcommand_metavar="VERB | FILE...  [-- COMPILE COMMAND]",
    epilog="`mdh-lift FILE...` checks, lifts, tunes, verifies and prints the result as a diff; -w writes it.",
)
def cli() -> None:
    """Lifts annotated C loop nests, tunes them for this machine and puts the result back into the source.

    Names of nests: path.c::function::label.  Everything after `--` is the compile command of the files.
    """


def verb(name: str, **settings: object) -> Callable[[Callable[..., object]], click.Command]:
    return cli.command(name, **settings)


paths = click.argument("paths", nargs=-1, metavar="[PATH[::FUNCTION[::LABEL]]]...")
write = click.option("-w", "--write", is_flag=True, help="Write the files instead of printing a diff.")
force = click.option("--force", is_flag=True, help="Overwrite edited regions; splice without a speedup.")


target = click.option(
    "--target", type=click.Choice(TARGETS), help="What to emit for; default: as the nest says, or openmp."
)


def search_options(command: Callable[..., object]) -> Callable[..., object]:
    """The options of ``tune``, which the main job takes as well."""
    for option in reversed(
        [
            click.option("--budget", metavar="30ev|20s|2m|0", callback=_budget, help="How long to search."),
            click.option("--strategy", type=click.Choice(["auto", *STRATEGIES]), help="Search strategy."),
            click.option("--resume/--no-resume", default=True, help="Use what the database knows."),
            click.option("--replay", is_flag=True, help="Take all results from the database; run nothing."),
        ]
    ):
        command = option(command)
    return command


def _budget(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    try:
        parse_budget(value or "0")
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return value


# --------------------------------------------------------------------------- verbs


@click.command("mdh-lift", cls=Verb)
@click.argument("paths", nargs=-1, required=True, metavar="FILE[::FUNCTION[::LABEL]]...")
@write
@force
@target
@search_options
@click.pass_context
def lift_files(ctx: click.Context, /, **arguments: object) -> None:
    """Check, lift, tune within a small budget, verify, and print the result as a diff; -w writes it."""
    ctx.exit(verbs.lift_files(_session(ctx), **arguments))  # type: ignore[arg-type]


@verb("check")
@paths
@click.pass_context
def check(ctx: click.Context, paths: Sequence[str]) -> None:
    """Read directives, lift, say what does not lift and why; freshness of splices."""
    ctx.exit(verbs.check(_session(ctx), paths))


@verb("show")
@paths
@click.option("--as", "form", type=click.Choice(["text", "json", "dsl", "latex", "isl"]), default="text")
@click.option("--stage", type=click.Choice(["nest", "mdh", "low"]), default="mdh", help="What to show.")
@click.pass_context
def show(ctx: click.Context, paths: Sequence[str], form: str, stage: str) -> None:
    """The MDH expression of nests, and what was inferred."""
    ctx.exit(verbs.show(_session(ctx), paths, form, stage))


@verb("emit")
@paths
@target
@click.option(
    "--config", "configuration", metavar="FILE", help="Configuration as JSON; default: the cost model's."
)
@click.option(
    "--device", type=click.Choice([*DEVICES, "this"]), help="The GPU to choose for; this: of this machine."
)
@click.pass_context
def emit(ctx: click.Context, /, **arguments: object) -> None:
    """The generated code of nests."""
    ctx.exit(verbs.emit(_session(ctx), **arguments))  # type: ignore[arg-type]


@verb("tune")
@paths
@target
@search_options
@click.pass_context
def tune(ctx: click.Context, /, **arguments: object) -> None:
    """Search; write the database and the lock file."""
    ctx.exit(verbs.tune(_session(ctx), **arguments))  # type: ignore[arg-type]


@verb("verify")
@paths
@target
@click.pass_context
def verify(ctx: click.Context, /, **arguments: object) -> None:
    """Compare the original with the emitted code on many sizes and inputs."""
    ctx.exit(verbs.verify(_session(ctx), **arguments))  # type: ignore[arg-type]


@verb("bench")
@paths
@target
@click.pass_context
def bench(ctx: click.Context, /, **arguments: object) -> None:
    """Measure original and result again, paired and interleaved; the ratio with its interval."""
    ctx.exit(verbs.bench(_session(ctx), **arguments))  # type: ignore[arg-type]


@verb("splice")
@paths
@write
@force
@target
@click.pass_context
def splice(ctx: click.Context, /, **arguments: object) -> None:
    """Put the result of `tune` in place; print a diff, -w writes."""
    ctx.exit(verbs.splice(_session(ctx), **arguments))  # type: ignore[arg-type]


@verb("revert")
@paths
@write
@click.pass_context
def revert(ctx: click.Context, /, **arguments: object) -> None:
    """Restore the original bytes; print a diff, -w writes."""
    ctx.exit(verbs.revert(_session(ctx), **arguments))  # type: ignore[arg-type]


@verb("status")
@paths
@click.pass_context
def status(ctx: click.Context, paths: Sequence[str]) -> None:
    """One line per nest: lifted, spliced, stale."""
    ctx.exit(verbs.status(_session(ctx), paths))


@verb("explain")
@click.argument("code")
@click.pass_context
def explain(ctx: click.Context, code: str) -> None:
    """The long form of a diagnostic."""
    row = CODES.get(code.upper()) or CODES.get(f"MDH{code}")
    if row is None:
        near = difflib.get_close_matches(code.upper(), CODES, 3)
        hint = f"; near: {', '.join(near)}" if near else "; `mdh-lift codes` lists all"
        raise click.UsageError(f"no diagnostic has the code `{code}`{hint}")
    ctx.exit(verbs.explain(_session(ctx), row))


@verb("codes")
@click.pass_context
def codes(ctx: click.Context) -> None:
    """All diagnostics, one per line."""
    ctx.exit(verbs.codes(_session(ctx)))


@verb("config")
@click.argument("path", default=".")
@click.pass_context
def config(ctx: click.Context, path: str) -> None:
    """The configuration that holds for a file, and where it comes from."""
    ctx.exit(verbs.config(_session(ctx), path))


@verb("version")
@click.pass_context
def version(ctx: click.Context) -> None:
    """The version."""
    ctx.exit(verbs.version(_session(ctx)))


@verb("doctor")
@click.pass_context
def doctor(ctx: click.Context) -> None:
    """What mdh-lift finds on this machine."""
    ctx.exit(verbs.doctor(_session(ctx)))


def main() -> None:
    """Entry point of the command."""
    with contextlib.suppress(AttributeError):  # names of files need not be UTF-8
        sys.stdout.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]
        sys.stderr.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        cli.main(prog_name="mdh-lift")
    except OSError as error:
        _no_output(error)


def _no_output(error: OSError) -> None:
    """The disk behind standard output or standard error is full, or the like: exit status 2."""
    reason = (error.strerror or str(error)).lower()
    with contextlib.suppress(OSError):
        os.write(2, f"Error: the output cannot be written: {reason}\n".encode())
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(2)  # what is still buffered would fail once more
