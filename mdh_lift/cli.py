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
from mdh_lift import tool_verbs, verbs
from mdh_lift.compile_command import DatabaseError
from mdh_lift.config import STYLES, ConfigurationError
from mdh_lift.findings import FAIL_ON
from mdh_lift.selection import unknown_codes
from mdh_lift.session import FORMATS, Session
from mdh_lift.version import VERSION
from tuning.budget import STRATEGIES, parse_budget

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
        option("--style", type=click.Choice(STYLES), help="How the result stands in the source."),
        option("--locked", is_flag=True, help="Fail if the lock file would change."),
        option("--frozen", is_flag=True, help="--locked, and neither compile nor run anything."),
        option(
            "--accept",
            metavar="scop,omp,acc",
            callback=_accept,
            help="Read these directives as well.",
        ),
        option("--fail-on", type=click.Choice(FAIL_ON), help="Exit with 1 from this severity on (error)."),
        option("--exit-zero", is_flag=True, help="Exit with 0 in spite of findings."),
        option("--baseline", metavar="FILE", help="Findings that are allowed; see check --write-baseline."),
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


def _frozen_forbids(ctx: click.Context) -> None:
    """For what cannot be done without compiling and running something."""
    if _session(ctx).frozen:
        raise click.UsageError(f"`--frozen` forbids to compile and run, which `{ctx.info_name}` has to")


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
            click.option("--fingerprint", metavar="NAME", help="Replay what this machine class measured."),
            click.option("--nearest", is_flag=True, help="Take a similar machine's choice, do not search."),
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


def _codes(_ctx: click.Context, _param: click.Parameter, value: str | None) -> list[str] | None:
    """Codes, or what they begin with, separated by commas."""
    words = None if value is None else [word.strip() for word in value.split(",") if word.strip()]
    for word in unknown_codes(words or []):
        raise click.BadParameter(f"no diagnostic has a code like `{word}`; `mdh-lift codes` lists all")
    return words


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
@click.option("--select", metavar="CODES", callback=_codes, help="Tell these only: MDH2,MDH404.")
@click.option("--ignore", metavar="CODES", callback=_codes, help="Do not tell these.")
@click.option("--write-baseline", is_flag=True, help="Allow what there is, in the file of --baseline.")
@click.pass_context
def check(ctx: click.Context, /, **arguments: object) -> None:
    """Read directives, lift, say what does not lift and why; freshness of splices and lock file."""
    from mdh_lift.check import check

    ctx.exit(check(_session(ctx), **arguments))  # type: ignore[arg-type]


@verb("scan")
@paths
@click.option(
    "--size", type=click.IntRange(1), default=1000, show_default=True, metavar="N",
    help="What sizes count as that are neither constants nor stated.",
)
@click.option("--max-nests", "most", type=click.IntRange(1), metavar="N", help="Print only the first N.")
@click.pass_context
def scan(ctx: click.Context, /, **arguments: object) -> None:
    """Find loop nests, with directives or without; rank them by work and by whether they lift."""
    from mdh_lift import scan as scanning

    ctx.exit(scanning.scan(_session(ctx), **arguments))  # type: ignore[arg-type]


@verb("annotate")
@paths
@write
@click.option(
    "--min-iterations", "least", type=click.FloatRange(0), default=1000, show_default=True, metavar="N",
    help="Leave out nests of constant sizes with fewer iterations.",
)
@click.pass_context
def annotate(ctx: click.Context, /, **arguments: object) -> None:
    """Put `#pragma mdh` before the nests that lift; print a diff, -w writes."""
    from mdh_lift import scan as scanning

    ctx.exit(scanning.annotate(_session(ctx), **arguments))  # type: ignore[arg-type]


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
    if arguments["device"] == "this":
        _frozen_forbids(ctx)
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
    _frozen_forbids(ctx)
    ctx.exit(verbs.verify(_session(ctx), **arguments))  # type: ignore[arg-type]


@verb("bench")
@paths
@target
@click.pass_context
def bench(ctx: click.Context, /, **arguments: object) -> None:
    """Measure original and result again, paired and interleaved; the ratio with its interval."""
    _frozen_forbids(ctx)
    ctx.exit(verbs.bench(_session(ctx), **arguments))  # type: ignore[arg-type]


def search_options_of_others(command: Callable[..., object]) -> Callable[..., object]:
    """Those of ``search_options``, hidden, so that what is meant can be said: `splice` does not search."""

    def refused(_ctx: click.Context, param: click.Parameter, value: object) -> None:
        if value is not None:
            raise click.UsageError(
                f"`splice` puts in place what was found before and searches nothing, so `{param.opts[0]}`"
                f" means nothing to it; `mdh-lift FILE -w {param.opts[0]} ...` searches, verifies and writes"
            )

    for names in (["--budget"], ["--strategy"], ["--fingerprint"]):
        command = click.option(*names, hidden=True, expose_value=False, callback=refused)(command)
    for names in (["--resume/--no-resume"], ["--replay"], ["--nearest"]):
        rest = {"is_flag": True, "default": None, "hidden": True, "expose_value": False}
        command = click.option(*names, callback=refused, **rest)(command)  # type: ignore[arg-type]
    return command


@verb("splice")
@paths
@write
@force
@target
@search_options_of_others
@click.option("--check", "only_check", is_flag=True, help="Only say what would change; compile nothing.")
@click.pass_context
def splice(ctx: click.Context, /, only_check: bool, **arguments: object) -> None:
    """Put in place what was verified before; print a diff, -w writes. Compiles and runs nothing."""
    if only_check:
        from mdh_lift.splice_check import splice_check

        if arguments["write"] or arguments["force"]:
            raise click.UsageError("`--check` changes nothing: it goes without `-w` and `--force`")
        ctx.exit(splice_check(_session(ctx), arguments["paths"], arguments["target"]))  # type: ignore[arg-type]
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
    ctx.exit(tool_verbs.explain(_session(ctx), row))


@verb("codes")
@click.pass_context
def codes(ctx: click.Context) -> None:
    """All diagnostics, one per line."""
    ctx.exit(tool_verbs.codes(_session(ctx)))


@verb("config")
@click.argument("path", default=".")
@click.pass_context
def config(ctx: click.Context, path: str) -> None:
    """The configuration that holds for a file, and where it comes from."""
    ctx.exit(tool_verbs.config(_session(ctx), path))


@verb("version")
@click.option("--where", is_flag=True, help="Where the files for CMake, make and GitLab are.")
@click.pass_context
def version(ctx: click.Context, where: bool) -> None:
    """The version."""
    ctx.exit(tool_verbs.version(_session(ctx), where))


@verb("port")
@click.argument("paths", nargs=-1, metavar="[TREE]...")
@write
@force
@target
@search_options
@click.option("-n", "--dry-run", is_flag=True, help="Say which nests would be tried; run and write nothing.")
@click.option("--annotate", is_flag=True, help="Put directives before nests that lift and have none.")
@click.option("--select", multiple=True, metavar="GLOB", help="Only these files, or nests: `src/*.c::main`.")
@click.option("--max-nests", type=click.IntRange(0), metavar="N", help="Only the N nests with the most work.")
@click.option("--time-limit", type=click.FloatRange(0), default=0.0, metavar="S", help="Seconds per file.")
@click.option("--summary", multiple=True, metavar="FILE", help="Write the scoreboard: .json, .md, or text.")
@click.option("--fail-if-worse", metavar="FILE", help="Exit with 1 if a nest was better in this scoreboard.")
@click.option("--suite/--no-suite", default=True, help="Compare whole programs that `[suite]` names.")
@click.option("--progress", type=click.Choice(["auto", "plain", "json", "none"]), default="auto")
@click.pass_context
def port(ctx: click.Context, /, **arguments: object) -> None:
    """Lift, tune, verify and (-w) splice a whole tree; print a scoreboard. Goes on where it stopped."""
    from mdh_lift import port as porting

    ctx.exit(porting.port_with(_session(ctx), arguments))


@verb("report")
@paths
@click.option(
    "--format", "form", type=click.Choice(["html", "md", "json"]), default="html", help="Page, text or data."
)
@click.option("--scoreboard", metavar="FILE", help="The scoreboard of `port`, as JSON.")
@click.option("--title", metavar="TEXT", help="Heading of the report.")
@click.option("--open", "show", is_flag=True, help="Show the page in the browser.")
@click.option("--serve", is_flag=True, help="Serve the page on this machine alone, until interrupted.")
@click.pass_context
def report(ctx: click.Context, /, **arguments: object) -> None:
    """One self-contained page: what was lifted, tuned and verified, how fast it is, and why."""
    from mdh_lift.report.verb import report as make

    ctx.exit(make(_session(ctx), **arguments))  # type: ignore[arg-type]


@verb("doctor")
@click.option("--bench", is_flag=True, help="Measure bandwidth and FMA peak, for the rooflines of `report`.")
@click.pass_context
def doctor(ctx: click.Context, bench: bool) -> None:
    """What mdh-lift finds on this machine."""
    _frozen_forbids(ctx)
    ctx.exit(tool_verbs.doctor(_session(ctx), bench))


# --------------------------------------------------------------------------- the database


class VerbGroup(click.Group):
    """A verb with verbs of its own, which take the global options."""

    command_class = Verb


_HELP = {"help_option_names": ["-h", "--help"]}


@cli.group("db", cls=VerbGroup, params=global_options(), context_settings=_HELP)
def db() -> None:
    """The tuning database: look at it, hand it on, tidy up."""


def db_verb(name: str) -> Callable[[Callable[..., object]], click.Command]:
    """A verb of ``db``; its function has the name in ``mdh_lift.db`` that it runs."""

    def made(function: Callable[..., object]) -> click.Command:
        def run(**arguments: object) -> None:
            from mdh_lift import db as database

            ctx = click.get_current_context()
            verb = getattr(database, function.__name__.removeprefix("db_"))
            ctx.exit(verb(_session(ctx), arguments.pop("database"), **arguments))

        run.__doc__ = function.__doc__
        run.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
        place = click.option("--database", metavar="FILE", help="Default: as the configuration says.")
        return db.command(name)(place(run))

    return made


def _age(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    from mdh_lift.db import parse_age

    try:
        return None if value is None else parse_age(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


nest_names = click.argument("nests", nargs=-1, metavar="[[PATH::]FUNCTION::LABEL]...")


@db_verb("list")
@nest_names
def db_show_list() -> None:
    """One line per nest, machine and size: searches, best time, speedup."""


@db_verb("show")
@nest_names
def db_show() -> None:
    """What the searches of nests were, and what came of them."""


@db_verb("export")
@nest_names
@click.option("--as", "form", type=click.Choice(["json", "csv", "t4", "kernel-tuner"]), default="json")
@click.option("--record", metavar="ID", help="Only this search.")
def db_export() -> None:
    """Write searches out: all their evaluations, failed ones included; -o names the file."""


@db_verb("import")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
def db_import_file() -> None:
    """Take over what `db export --as json` wrote; `-` reads standard input."""


@db_verb("merge")
@click.argument("others", nargs=-1, required=True, metavar="DATABASE...")
def db_merge() -> None:
    """Take over the searches of other databases, which stay as they are."""


@db_verb("prune")
@click.option("--older-than", metavar="90d", callback=_age, help="Searches begun before that (h, d, w).")
@click.option("--gone", is_flag=True, help="Searches and lock entries of nests that no longer exist.")
@click.option("--other-versions", is_flag=True, help="Searches by other versions of mdh-lift.")
@click.option("-w", "--write", "--yes", is_flag=True, help="Remove them; else it is only said what would go.")
def db_prune() -> None:
    """Remove searches that no lock entry refers to; say which."""


@db_verb("vacuum")
def db_vacuum() -> None:
    """Make the file as small as what is in it."""


@verb("lsp")
@click.option("--stdio", is_flag=True, hidden=True, help="What clients like to say; there is no other way.")
@click.pass_context
def lsp(ctx: click.Context, stdio: bool) -> None:
    """The language server, on standard input and output; it needs the extra `lsp`."""
    from mdh_lift import lsp as package

    ctx.exit(package.run(_session(ctx)))


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
