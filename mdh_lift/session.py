"""One run of the command: global options in, findings and results collected, output and exit status out."""

from __future__ import annotations

import difflib
import errno
import platform
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from mdh_core.diagnostics import Diagnostic, Refusal
from mdh_core.source import SourceFile
from mdh_lift import baseline, headers, report_data, report_text
from mdh_lift import config as configuration
from mdh_lift.compile_command import DatabaseError, from_words
from mdh_lift.config import Config, ConfigurationError
from mdh_lift.files import Change, read_source, source_files, write_output
from mdh_lift.findings import Finding, counts, exit_status, in_order
from mdh_lift.pipeline import FileReport, NestReport, Options
from mdh_lift.report_cases import Case
from mdh_lift.selection import Rules, Selection
from mdh_lift.version import VERSION

FORMATS = ("text", "concise", "json", "jsonl", "sarif", "github", "gitlab", "junit", "md")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Target:
    """A file that the user asked for, and the nests of it: ``path[::function[::label]]``."""

    path: str
    function: str = ""
    label: str = ""
    named: bool = True  # by the user, not found below a directory

    def selects(self, short_name: str) -> bool:
        function, _, label = short_name.partition("::")
        return self.function in ("", function) and self.label in ("", label)


@dataclass
class Session:
    """The global options (None: not given), and what has been found so far."""

    jobs: int | None = None
    output_format: str = "text"
    output: str | None = None
    color: str = "auto"
    quiet: bool = False
    verbose: int = 0
    seed: int | None = None
    min_speedup: float | None = None
    accept: list[str] | None = None
    style: str = ""
    build_dir: str = ""
    config_file: str | None = None
    isolated: bool = False
    locked: bool = False
    frozen: bool = False
    compile_words: list[str] | None = None
    fail_on: str | None = None
    exit_zero: bool = False
    baseline: str | None = None  # a file; of `check --write-baseline`, which one to write

    findings: list[Finding] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    reports: list[FileReport] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    noted: Counter[str] = field(default_factory=Counter)  # for the footer
    started: float = field(default_factory=time.monotonic)
    select: list[str] | None = None
    ignore: list[str] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)
    summary: list[dict[str, str]] = field(default_factory=list)  # rows of a table, one per nest
    ending: str = ""  # instead of the usual last line
    _out: list[str | bytes] = field(default_factory=list)
    _configs: dict[Path | None, Config] = field(default_factory=dict)
    _selection: Selection | None = None

    # ------------------------------------------------------------------ input

    @property
    def for_people(self) -> bool:
        return self.output_format in ("text", "concise")

    def options(
        self,
        path: str,
        *,
        budget: str | None = None,
        strategy: str | None = None,
        force: bool = False,
        resume: bool = True,
        replay: bool = False,
        fingerprint: str | None = None,
        nearest: bool = False,
        target: str | None = None,
        recorded: bool = False,
    ) -> Options:
        """Options for one file: its configuration with the command line over it."""
        config = self.config(path)
        given = {
            "seed": self.seed,
            "min_speedup": self.min_speedup,
            "jobs": self.jobs,
            "budget": budget,
            "strategy": strategy,
            "target": target,
        }
        tune = msgspec.structs.replace(config.tune, **{k: v for k, v in given.items() if v is not None})
        lift = config.lift
        if self.accept is not None:
            lift = msgspec.structs.replace(lift, accept=self.accept)
        words = self.compile_words
        return Options(
            msgspec.structs.replace(config, tune=tune, lift=lift),
            configuration.root(path, self.config_file_of(path)),
            None if words is None else from_words(words, ".", path),
            self.build_dir,
            force,
            resume,
            replay,
            self.style,
            fingerprint or "",
            nearest,
            self.locked or self.frozen,
            self.frozen,
            recorded=recorded,
        )

    def config_file_of(self, path: str) -> Path | None:
        if self.isolated:
            return None
        return Path(self.config_file) if self.config_file else configuration.find(path)

    def config(self, path: str) -> Config:
        """The configuration of a file; a usage error where it cannot be used."""
        try:
            file = self.config_file_of(path)
            if file not in self._configs:
                self._configs[file] = configuration.load(file)
        except ConfigurationError as error:
            raise click.UsageError(str(error)) from None
        return self._configs[file]

    # ------------------------------------------------------------------ which findings are told

    @property
    def selection(self) -> Selection:
        """Made when it is first asked for; a usage error where the baseline cannot be read."""
        if self._selection is None:
            path = self.baseline_path()
            try:
                allowed = baseline.read(path) if path is not None else None
            except baseline.BaselineError as error:
                raise click.UsageError(str(error)) from None
            self._selection = Selection(allowed, path.parent) if path and allowed else Selection()
        return self._selection

    def baseline_path(self) -> Path | None:
        """The baseline that holds: of the command line, or of the configuration of the working directory."""
        if self.baseline is not None:
            return Path(self.baseline)
        name = self.config(".").baseline
        return configuration.root(".", self.config_file_of(".")) / name if name else None

    def without_baseline(self) -> None:
        """Tell what a baseline would allow, too."""
        self._selection = Selection()

    def kept(self, findings: Sequence[Finding], nest_line: int = 0) -> list[Finding]:
        """Those that are to be told, with the severities that they shall have."""
        return [
            told for f in findings
            for told in self.selection.kept([f], self.rules(f.file or "."), nest_line)
        ]  # fmt: skip

    def rules(self, file: str) -> Rules:
        """What this run tells of a file."""
        d = self.config(file).diagnostics
        return Rules(
            d.select if self.select is None else self.select,
            (*d.ignore, *self.ignore),
            d.severity,
            d.per_file_ignores,
            configuration.root(file, self.config_file_of(file)),
        )

    def sifted(self, report: FileReport) -> FileReport:
        """A report without the findings that are not to be told; those about comments are added."""
        about_comments = self.selection.read(report.source, report.bare)
        nests = tuple(
            replace(n, findings=tuple(self.kept(n.findings, n.line))) if n.findings else n
            for n in report.nests
        )
        own = tuple(self.kept([*report.findings, *about_comments]))
        return replace(report, nests=nests, findings=own)

    def counts(self, f: Finding) -> int:
        """The exit status that a finding asks for; a report is the same whatever the run's status is."""
        stated = self.fail_on or self.config(f.file or ".").fail_on
        return counts(f, "error" if stated == "never" else stated)

    def fail_on_of(self, file: str) -> str:
        if self.exit_zero:
            return "never"
        return self.fail_on or self.config(file or ".").fail_on

    # ------------------------------------------------------------------ files

    def targets(self, paths: Sequence[str]) -> Iterator[Target]:
        """All files that are meant; a usage error where there is none."""
        found: dict[Target, None] = {}
        for name in paths or ["."]:
            path, function, label = _split(name)
            for file in source_files(path):
                target = Target(file, function, label, named=file == path)
                if target.named or not self._excluded(file):
                    found[target] = None
        if not found:
            places = " ".join(paths or ["."])
            raise click.UsageError(f"no C files and no Python files with `@mdh` in {places}")
        yield from found

    def _excluded(self, file: str) -> bool:
        try:
            patterns = self.config(file).exclude
        except ConfigurationError as error:
            raise click.UsageError(str(error)) from None
        return any(
            fnmatch(file, p) or fnmatch(file, f"*/{p}") or fnmatch(file, f"{p.rstrip('/')}/*")
            for p in patterns
        )

    # ------------------------------------------------------------------ work

    def attempt(self, path: str, work: Callable[[], T], nest: NestReport | None = None) -> T | None:
        """The result of ``work`` (on a nest), or None after its refusal or crash was noted.

        ``path``: empty where the work is about no file.
        """
        if path and path not in self.files:
            self.files.append(path)
        try:
            return work()
        except Refusal as refusal:
            d = refusal.diagnostic
            found = Finding(
                d if d.file else replace(d, file=path), _source_of(path), nest.name if nest else ""
            )
            self.findings += self.kept([found], nest.line if nest else 0)
        except (ConfigurationError, DatabaseError) as error:
            raise click.UsageError(str(error)) from None
        except (click.ClickException, click.exceptions.Exit, KeyboardInterrupt):
            raise
        except Exception as error:
            if (reason := _of_the_system(error)) is None:
                self.crashed(error, path)
            else:
                self.findings.append(Finding(Diagnostic("MDH828", reason, path)))
        return None

    def crashed(self, error: Exception, path: str = "") -> None:
        """Our fault: the traceback goes into a file, the name of that file to the user."""
        report = write_crash_report(error)
        message = f"internal error: {type(error).__name__}: {error}".splitlines()[0]
        self.findings.append(
            Finding(
                Diagnostic("MDH901", message, path, help=f"please report it with the crash report {report}")
            )
        )
        if not self.for_people:
            click.echo(f"error[MDH901]: {message}; crash report: {report}", err=True)

    def settle(self, nest: NestReport, *codes: str) -> None:
        """Forget findings of a nest that this run puts right."""
        settled = {id(f) for f in nest.findings if f.diagnostic.code in codes}
        self.findings = [f for f in self.findings if id(f) not in settled]

    # ------------------------------------------------------------------ output

    @property
    def colour(self) -> bool:
        return self.output is None and report_text.wants_colour(self.color, sys.stdout)

    def result(self, text: str | bytes) -> None:
        """Text that the user asked for; printed at the end, with ``-o`` into the file."""
        self._out.append(text)

    def diff(self, change: Change) -> None:
        """The change as a unified diff."""
        self.result(coloured_diff(unified_diff(change), self.colour and self.for_people))

    def finish(
        self, content: Mapping[str, object] | None = None, diagnostics_are_results: bool = False
    ) -> int:
        """Print everything and return the exit status.

        ``content`` is the JSON object of the verb (without ``schema_version``); machine formats that
        know diagnostics only print these.
        """
        every = in_order(self.findings)
        findings = headers.helped(every, together=self.output_format == "text")
        shown = [
            f for f in findings if f.diagnostic.severity != "info" or self.verbose or not self.for_people
        ]
        if self.quiet and self.for_people:
            shown = [f for f in shown if f.diagnostic.severity == "error"]
        match self.output_format:
            case "text" | "concise":
                drawn = (report_text.text if self.output_format == "text" else report_text.concise)(shown)
                if diagnostics_are_results:
                    self._out.insert(0, drawn if self.colour else click.unstyle(drawn))
                else:
                    colour = report_text.wants_colour(self.color, sys.stderr)
                    click.echo(drawn if colour else click.unstyle(drawn), err=True, nl=False, color=True)
            case "json":
                diagnostics = [f.as_json() for f in findings]
                self._out = [report_data.json_object(content or {"nests": [], "diagnostics": diagnostics})]
            case "jsonl":
                self._out = [report_data.jsonl({"type": "diagnostic"} | f.as_json() for f in findings)]
            case "sarif":
                from mdh_lift.sarif import sarif

                self._out = [sarif(findings, self.status(findings), self.files)]
            case "github":
                self._out = [report_data.github(findings)]
            case "gitlab":
                self._out = [report_data.gitlab(findings)]
            case "junit":
                from mdh_lift.report_tests import junit

                self._out = [junit(findings, self.cases, self.counts)]
            case "md":
                from mdh_lift.report_markdown import markdown

                self._out = [markdown(findings, self.footer(findings, 0), self.summary)]
        self._print()
        if self.for_people and not self.quiet:
            click.echo(self.ending or self.footer(every, len(findings) - len(shown)), err=True)
        return self.status(findings)

    def status(self, findings: Sequence[Finding]) -> int:
        """The exit status of the run."""
        never = self.fail_on_of("") == "never"
        others = [0 if never and s == 1 else s for s in self.statuses]
        return max(0, *(exit_status([f], fail_on=self.fail_on_of(f.file)) for f in findings), *others, 0)

    def _print(self) -> None:
        data = b"".join(t.encode("utf-8", "surrogateescape") if isinstance(t, str) else t for t in self._out)
        if self.output is None:
            click.echo(data, nl=False)
            return
        try:
            write_output(self.output, data)
        except (OSError, RuntimeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise click.UsageError(f"cannot write {self.output}: {reason}") from None

    def footer(self, findings: Sequence[Finding], hidden: int) -> str:
        """What was looked at, in one line."""
        nests = [n for report in self.reports for n in report.nests]
        counts = Counter(n.status for n in nests)
        refused = Counter(
            f.diagnostic.code for n in nests if n.status == "refused" for f in n.findings[:1]
        )
        spliced = sum(bool(n.regions) for n in nests)
        parts = [_count(len(self.files), "file"), _count(len(nests), "nest")]
        parts += [f"{counts[s]} {s}" for s in ("lifted", "partial", "refused") if counts[s]]
        parts += [f"{spliced} spliced"] if spliced else []
        if refused:
            parts[-1] += f" ({', '.join(f'{n} {code}' for code, n in sorted(refused.items()))})"
        parts += [f"{number} {what}" for what, number in self.noted.items() if number]
        if self._selection is not None:
            ignored, allowed = self._selection.suppressed, self._selection.in_baseline
            parts += [f"{ignored} ignored by comments"] if ignored else []
            parts += [f"{allowed} in the baseline"] if allowed else []
        severities = Counter(f.diagnostic.severity for f in findings)
        parts += [_count(severities[s], s) for s in ("error", "warning") if severities[s]]
        if hidden and not self.quiet:
            parts.append(f"{_count(hidden, 'note')} not shown (-v)")
        return f"{', '.join(parts)}; {time.monotonic() - self.started:.2f} s"


_SYSTEM = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM, errno.EINTR),
    *(errno.ENOLCK, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENAMETOOLONG, errno.ELOOP),
    *(errno.ENODEV, errno.EFBIG, errno.ESTALE, errno.ENOTDIR, errno.EISDIR, errno.ENXIO),
)


def _of_the_system(error: Exception) -> str | None:
    """What the operating system (or the database, because of it) did not do; None where the fault is ours."""
    if isinstance(error, OSError) and error.errno in _SYSTEM:
        name = f"`{error.filename}`: " if error.filename is not None else ""
        return f"{name}{(error.strerror or str(error)).lower()}"
    module = type(error).__module__
    if module in ("sqlite3", "tuning.store") and not isinstance(error, AssertionError):
        return f"the tuning database cannot be used: {error}"
    return None


def _source_of(path: str) -> SourceFile | None:
    try:
        return read_source(path)
    except Refusal:
        return None


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _split(name: str) -> tuple[str, str, str]:
    """Path, function and label of ``path.c[::function[::label]]``; a path may hold ``::`` itself."""
    if Path(name).exists():
        return name, "", ""
    path, _, rest = name.partition("::")
    function, _, label = rest.partition("::")
    return path, function, label


def write_crash_report(error: BaseException) -> Path:
    """Path of a new file with the traceback and the versions."""
    import platformdirs  # not needed where all is well

    lines = [
        f"mdh-lift {VERSION}",
        f"python {sys.version}",
        platform.platform(),
        f"arguments {sys.argv[1:]}",
        "",
    ]
    text = "\n".join(lines) + "".join(traceback.format_exception(error))
    name = f"crash-{time.strftime('%Y%m%d-%H%M%S')}-{time.monotonic_ns() % 10**6:06d}.txt"
    for directory in (Path(platformdirs.user_log_dir("mdh-lift")), Path.cwd()):
        try:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(text, errors="backslashreplace")
            return directory / name
        except OSError:
            continue
    return Path("(no place to write it)")


# --------------------------------------------------------------------------- diffs


def unified_diff(change: Change) -> bytes:
    """A patch that ``patch -p1`` takes; empty where nothing changes."""
    name = change.path.encode("utf-8", "surrogateescape")
    before, after = (
        b"/dev/null" if data is None else side + name
        for side, data in ((b"a/", change.old), (b"b/", change.new))
    )
    lines = difflib.diff_bytes(
        difflib.unified_diff, _lines(change.old or b""), _lines(change.new or b""), before, after
    )
    return b"".join(
        line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n" for line in lines
    )


def _lines(data: bytes) -> list[bytes]:
    """Lines with their line feeds; unlike ``splitlines``, nothing else ends a line."""
    *lines, last = data.split(b"\n")
    return [line + b"\n" for line in lines] + ([last] if last else [])


def coloured_diff(diff: bytes, colour: bool) -> bytes:
    if not colour:
        return diff
    out = []
    for line in diff.split(b"\n"):
        sign = line[:1]
        code = {b"+": b"32", b"-": b"31", b"@": b"36"}.get(sign)
        out.append(line if code is None else b"\x1b[" + code + b"m" + line + b"\x1b[0m")
    return b"\n".join(out)
