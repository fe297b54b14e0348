"""Diagnostics: the value, the table of codes, and what an exit status is made of.

A diagnostic has a severity, a stable code ``MDHnnn``, a headline (what is wrong, lower case, no
full stop), the smallest span at fault with a label, related spans, notes (facts) and a help (the
smallest edit that would make it work).  Call sites pass meaning; ``mdh_lift/report_text.py`` and
its siblings draw it.
"""

from __future__ import annotations

from dataclasses import dataclass

from mdh_core.source import NO_SPAN, SourceFile, Span


@dataclass(frozen=True, slots=True)
class Code:
    """One row of the table: code, default severity, short title, long form for ``explain``."""

    code: str
    severity: str  # "error" | "warning" | "info"
    title: str
    explanation: str
    exit_status: int = 1


def _rows(*rows: tuple[str, str, str, str] | tuple[str, str, str, str, int]) -> dict[str, Code]:
    return {row[0]: Code(*row) for row in rows}


CODES: dict[str, Code] = _rows(
    # 0xx reading and parsing
    ("MDH001", "error", "file cannot be read", "The file does not exist, is a directory, or may not be read. Nothing was changed.", 2),
    ("MDH002", "error", "preprocessing failed", "The C preprocessor reported an error, often a missing header. Give the compile command after `--`, for example `mdh-lift check f.c -- cc -I include`."),
    ("MDH003", "error", "declaration cannot be parsed", "The function that holds the directive uses C that the parser does not know. Other functions of the file do not matter. Move the nest into a function of its own."),
    ("MDH004", "error", "directive is not followed by a loop or block", "`#pragma mdh` belongs directly before a loop, an `if` with loops in it or a compound statement `{ ... }`."),
    ("MDH005", "error", "nest has no exact place in the file", "The bytes of the nest could not be told apart from the rest of the file, because a macro makes more than the loop or an `#if` cuts through it. Nothing is edited in that case."),
    ("MDH006", "error", "construct not supported inside a nest", "The nest uses a C construct that has no meaning in the formalism, such as a `switch`, an assignment inside an expression or an address taken."),
    ("MDH007", "warning", "no directive in the file", "The file holds no `#pragma mdh` and no function decorated with `@mdh`. Write the one above a loop nest, the other above a function.", 0),
    # 1xx what was lifted
    ("MDH101", "info", "nest was lifted", "The nest became multi-dimensional homomorphisms; `mdh-lift show` prints them.", 0),
    ("MDH102", "info", "loop runs in order", "An iteration of this loop needs what an earlier one computed, so the loop stays a loop; what stands inside of it is lifted. The reason is that of the code in `show --as json`.", 0),
    ("MDH103", "info", "statements stay as they were", "These statements could not become an `md_hom`; they run as written between the parts that were lifted.", 0),
    ("MDH104", "info", "neighbouring parts may be one sweep", "These `md_hom`s run one after the other and could be one, which would read or write less memory. Whether they are is a choice of each configuration (`fuse_<k>`): the cost model makes it, a search tries both. `show --as json` lists what may be fused under `fusions`.", 0),
    ("MDH105", "info", "region is not one nest", "The statements between `#pragma scop` and `#pragma endscop` are not lifted together, for the reason that the message says, so each of its loops is a nest of its own.", 0),
    ("MDH106", "info", "no directive can stand before the loop", "The loop has no directive, and none can be put before it: a macro makes its `for`, or it stands inside an argument of a macro. Written out as a statement of its own it could have one.", 0),
    ("MDH107", "info", "directive would rename nests", "Nests without `name(...)` are counted from the start of their function. A directive above others that are spliced already would change their names, so that their generated code no longer belonged to them. `name(...)` for the nests below, or `revert -w` before, makes room.", 0),
    ("MDH108", "info", "loop could have a directive", "The loop nest has no directive and would lift if it had one. `mdh-lift annotate` puts it there.", 0),
    # 2xx not liftable
    ("MDH201", "error", "index is not affine", "Every subscript must be linear in the loop iterators and sizes plus a constant, for example `2*i + j - 1`."),
    ("MDH202", "error", "loop bound is not supported", "A loop's bounds must not change while the nest runs and must not depend on data or on an outer iterator."),
    ("MDH203", "info", "buffers may overlap", "Two pointers may refer to the same memory. The generated code tests this at run time and the original runs where they overlap; `noalias(a, b)` or `restrict` removes the test.", 0),
    ("MDH204", "error", "call with side effects", "Only math.h functions and functions of the same file that read and write nothing but their parameters and locals may be called inside a nest."),
    ("MDH205", "error", "early exit from the nest", "`break`, `continue`, `goto` and `return` make the set of iterations depend on data."),
    ("MDH206", "error", "linearised index could not be taken apart", "A flat index such as `A[i*K + k]` is read as `A[i][k]` when the strides divide one another and each part stays inside its stride. State sizes or declare the array with its dimensions."),
    ("MDH207", "error", "loop-carried dependence is no known combine operator", "An iteration needs a value that an earlier one wrote, and the update is not a reduction or scan that mdh-lift can recognise."),
    ("MDH208", "error", "output cell is written more than once", "Two iterations write the same cell and the last one would win; an `md_hom` has no order. Write each cell once or combine the values."),
    ("MDH209", "error", "combination of combine operators is not well defined", "Operators of different dimensions must obey the interchange law: concatenation with anything, or the same associative and commutative operator in all reduced dimensions."),
    ("MDH210", "error", "loop form is not supported", "Loops are `for (i = lo; i < hi; i += c)` with a constant step; `<=`, `>`, `>=`, `!=` and declarations outside are fine."),
    ("MDH211", "error", "shape of the nest is not supported", "Around a perfect nest, only initialisation of accumulators before an inner loop and stores of them after it are lifted."),
    ("MDH212", "error", "type is not supported", "Values are `float`, `double`, (unsigned) integers of 8 to 64 bits, `_Bool`, and structs of these."),
    ("MDH213", "error", "nest reads what another iteration writes", "A cell is read in one iteration and written in another, so the iterations depend on one another's order. Write to a second buffer, or mark the dimension as `ps` if it is a scan."),
    ("MDH214", "error", "index depends on data", "A subscript that is itself read from memory, such as `x[idx[i]]`, is not lifted."),
    ("MDH215", "error", "analysis took too long", "The analysis of the nest was stopped after the time that `lift.seconds` in the configuration allows. Directives before smaller parts of the nest make it quicker."),
    ("MDH216", "warning", "type is known when the function is called", "A Python function without declarations is lifted for the types of each call, so its text alone cannot be checked. Annotate the parameters, for example `x: \"float32[:]\"`, to check it.", 0),
    # 3xx meaning at risk
    ("MDH301", "info", "floating-point operations are reassociated", "A reduction over floating-point values is computed in another order than written, so the last digits may differ. `fp(exact)` forbids it, `fp(deterministic)` fixes the order.", 0),
    ("MDH303", "warning", "index leaves the declared extent", "For some iteration an index is outside the array's declared extents; in C the behaviour is undefined."),
    ("MDH304", "info", "floating-point policy keeps a reduction sequential", "`fp(exact)` never reassociates, so a reduction over floating-point values runs in the order as written.", 0),
    # 4xx directive
    ("MDH401", "error", "unknown clause", "The clauses are combine_ops, out, inp, name, sizes, assume, noalias, fp and target."),
    ("MDH402", "error", "malformed clause", "The text of the clause does not follow the grammar in the documentation."),
    ("MDH403", "error", "wrong number of combine operators", "`combine_ops` needs one operator per loop, outermost first, or `iterator: operator` pairs."),
    ("MDH404", "error", "declared combine operator contradicts the loop", "The analysis of the loop found another operator than the directive states. The loop is what runs; correct the clause."),
    ("MDH405", "error", "unknown combine function", "`pw(f)` and `ps(f)` take + * min max & | ^ && || argmin argmax or the name of a function defined before the nest."),
    ("MDH406", "error", "combine function has an unsuitable signature", "A combine function is `T f(T, T)` or `void f(T *res, const T *lhs, const T *rhs)`."),
    ("MDH407", "error", "clause given twice", "Each clause except sizes, assume and noalias may appear once."),
    ("MDH408", "error", "declared buffers differ from the nest's", "`out` and `inp` must name exactly the buffers that the nest writes and reads."),
    ("MDH409", "error", "unknown name in a clause", "A clause names an iterator, size or buffer that the nest does not have."),
    ("MDH410", "error", "combine function is not associative or not commutative", "Random values showed that the declared combine function does not obey the law that the directive promises."),
    ("MDH411", "error", "target is not available", "The target that was asked for, with `--target` or `tune.target` in the configuration, is not in the nest's `target` clause."),
    ("MDH412", "error", "loop is claimed to be parallel but is not", "An OpenMP or OpenACC directive, read with `--accept`, says that the iterations of a loop are independent; the analysis finds that one needs what another computes, or that all of them write the same variable."),
    ("MDH413", "error", "clause of a directive contradicts the loop", "A `reduction` or `collapse` clause of an OpenMP or OpenACC directive is missing or differs from what the loops do."),
    ("MDH414", "warning", "nest is not replaced because of a directive", "A call in place of the nest would not do the same: `omp for` and `acc loop` share out a loop among threads that run already, each of which would call; a region may run on a device; a directive above `#pragma mdh` may need a loop next. The nest is checked and shown, not spliced. `omp parallel for` and `acc parallel loop` start threads of their own."),
    ("MDH415", "warning", "assignment combines", "In Python, a function that declares its buffers with `out` and `inp` follows the MDH project: `=` into a cell that does not depend on a reduced dimension combines all values over that dimension, where plain Python would keep the last one. With `+=` and the like both mean the same.", 0),
    ("MDH416", "error", "array cannot be copied to a GPU", "A GPU has memory of its own: before the nest runs there, the part of each array that it touches is copied. Where the size of an array is not declared, and it is indexed with data or under a condition on data, that part is not known."),
    ("MDH417", "error", "name means something else on a GPU", "Names of the nest stand in the kernels as they are. One is a word of CUDA C++ or OpenCL C, or a variable of the generated host function."),
    ("MDH418", "error", "data directive does not fit", "`#pragma mdh data copy(A)` stands before a compound statement `{ ... }`, outside of nests, and names arrays or pointers that are declared before it."),
    ("MDH419", "error", "arrays cannot stay on the device", "In the statement of a data directive the newest values of its arrays are in the memory of a GPU. Between the nests, the host may copy and exchange pointers to them, but neither use an element, nor hand them to a function; the statement is left at its end only; and what a nest writes is copied out or said not to be needed."),
    ("MDH420", "error", "comment for mdh-lift cannot be read", "A finding is ignored by `// mdh-lift: ignore[MDH214] reason` on its line or alone on the line before, or there with the directive of its nest. Codes and reason are required; without them nothing is ignored."),
    ("MDH421", "error", "unknown code in a comment for mdh-lift", "The comment names a code that no diagnostic has; `mdh-lift codes` lists all."),
    ("MDH422", "warning", "nothing is ignored by a comment", "The comment ignores a code that is not reported there any more. Remove it, so that it does not hide what comes later. Codes that only `tune`, `verify` and their like report are left alone.", 0),
    ("MDH423", "error", "diagnostic cannot be ignored", "What says that something could not be done, or was wrong, is always told: input and output, damaged regions, wrong results, the environment, internal errors (every code with an exit status of 2 or more)."),
    ("MDH424", "info", "baseline lists what is not reported any more", "The baseline file allows findings that are gone. `mdh-lift check --write-baseline` writes it anew, so that they cannot come back.", 0),
    # 5xx freshness
    ("MDH501", "error", "splice is stale", "The source nest changed after the generated code was made from it. Run `mdh-lift` on the file again."),
    ("MDH502", "error", "generated code was edited", "A generated region differs from what was written. `--force` overwrites it; `revert -w` drops it."),
    ("MDH503", "info", "newer version generates other text", "The generated code is from another version of mdh-lift; this one makes other text of the locked configuration. What stands there is right; `mdh-lift FILE -w --budget 0` compares and splices the new text.", 0),
    ("MDH504", "info", "tuned for another machine", "The lock file has no entry of the spliced code for a machine like this one. The code is right here, too, but may be slow; `mdh-lift tune` adds an entry for this machine.", 0),
    ("MDH505", "error", "spliced nest is not in the lock file", "The lock file has no entry for a nest that is spliced, or none for a target that `lock.targets` in the configuration asks for. `mdh-lift tune` writes it; commit `mdh-lift.lock` with the source."),
    ("MDH506", "error", "lock file does not match", "The generated code is not what the configuration in the lock file generates, or the entry was made from another version of the nest. `mdh-lift splice -w` puts the entry's code in place, `mdh-lift tune` makes the entry."),
    ("MDH507", "error", "file changed meanwhile", "The file was modified between reading and writing; nothing was written. Run the command again.", 2),
    ("MDH508", "warning", "nothing is spliced here", "The file holds no generated region, so there is nothing to revert.", 0),
    ("MDH509", "error", "generated region is damaged", "The markers of a generated region do not match; restore the file from version control.", 2),
    ("MDH510", "error", "nothing is put into Python files", "The decorator `@mdh` makes, verifies and loads the kernel of a Python function when the function is called; the file stays as it is. `check`, `show`, `emit` and `status` take Python files; tuning, verifying, measuring and splicing by the command are for C.", 2),
    ("MDH511", "error", "lock file cannot be read", "The lock file is no file, is damaged, holds the marks of a merge conflict, or was written by a later version. Restore it from version control, or merge it by hand: entries of different nests do not depend on each other.", 2),
    ("MDH516", "warning", "nest is left as it is because of another one", "All nests of a source that go to one kind of GPU stand in one generated file, which is written as a whole. One of them cannot be made again now, so none is written; source and files stay as they were."),
    ("MDH520", "error", "lock file would change", "With `--locked` or `--frozen` the lock file must hold already what the run would write: an entry for each nest on this machine, made from the nest as it is, of which this version generates the same code. Nothing was written."),
    ("MDH521", "error", "tuning database cannot be used", "The database is damaged, is of another program or of a later version, is locked for a minute, or cannot be written. It was left as it is. Moved away, it is made anew; what was chosen is in the lock file.", 2),
    ("MDH522", "error", "not known to be verified on this machine", "With `--frozen` nothing is compiled and nothing runs, so only code is put in place of which the tuning database says that it was compiled, run and compared on a machine with this fingerprint."),
    ("MDH523", "error", "nothing to replay", "`--replay` takes the result of a recorded search with the same nest, sizes, target, seed, strategy and budget, on this machine or on the one that `--fingerprint` names. The code that is generated now must be the recorded one."),
    ("MDH524", "error", "file holds no records of searches", "`db import` reads what `db export --as json` writes, and takes over all of a file or nothing. A record whose id is not that of its content was changed.", 2),
    ("MDH525", "error", "nothing verified is recorded", "`splice` compiles and runs nothing. It puts in place what `mdh-lift tune`, `mdh-lift FILE` or `mdh-lift bench` compiled, ran, compared and measured on a machine with this fingerprint, as the tuning database says; of this very nest, at these sizes, for this target and style, and of exactly the code that is generated now. Nothing was written for this nest. `mdh-lift tune` makes the record; `mdh-lift FILE -w` does all of it."),
    # 6xx tuning
    ("MDH603", "warning", "no speedup", "The best version found is not reliably faster than the original (lower bound of the 95 % interval), so the source is left alone. `--force` splices all the same.", 1),
    ("MDH604", "warning", "measurements are too noisy", "The measured times vary too much to call one version faster.", 4),
    ("MDH605", "warning", "tuning extra is not installed", "The search needs Kernel Tuner: `pip install mdh-lift[tune]`. The cost model's first choice is used instead.", 0),
    ("MDH606", "warning", "candidate was rejected", "A configuration failed to compile, crashed, took too long or gave a wrong result; it is recorded with its reason and never spliced.", 0),
    ("MDH607", "error", "no candidate survived", "Every configuration that was tried failed; the original is kept."),
    ("MDH608", "error", "configuration is not legal", "A configuration that was given by hand breaks a constraint: of the tuning parameters, or of what a GPU's shared memory needs. A swizzle, for example, must put every cell into a place of its own."),
    ("MDH610", "error", "worse than before", "Compared with the scoreboard that `--fail-if-worse` names, a nest that was accepted is not accepted any more, or the interval of its speedup lies below the former one.", 1),
    ("MDH611", "error", "file or program was given up", "Work on this file took longer than `--time-limit` allows, or its process ended by itself; or a program of the suite does not build, does not run, or does not print the same twice. What was finished before is kept; all others went on.", 4),
    ("MDH612", "error", "program prints something else", "The output of a program of the suite, built from the ported sources, differs from that of the original program by more than `compare` in the configuration allows. `mdh-lift revert -w` restores the sources.", 3),
    ("MDH613", "warning", "configuration of another machine", "Nothing was tuned for this machine, so the configuration that was chosen on the most similar one is taken: same system, instruction set and target, then the nearest by instructions, threads and caches. It was compiled, compared and measured here like any other; only a search says whether there is a better one.", 0),
    ("MDH614", "info", "search starts from another machine's choice", "Nothing was tuned for this machine before; what was chosen on the most similar one is among the first configurations that the search tries.", 0),
    ("MDH617", "info", "no limits of the machine are known", "A roofline needs the bandwidth and the peak of the machine that the nests were tuned on. `mdh-lift doctor --bench` measures them there once; without them the report gives operations and bytes alone.", 0),
    ("MDH618", "warning", "part of the report is missing", "A lock file, a database or a scoreboard could not be read, so the report lacks what it would have told. The rest is there.", 0),
    # 7xx wrong result
    ("MDH701", "error", "wrong result", "The emitted code and the original disagree. It is never spliced. Please report this with the nest.", 3),
    ("MDH702", "error", "certificate is refuted", "An obligation of the certificate has a counterexample: the lifted steps or their stages do not do what the nest does. The code is never spliced. Please report this with the nest.", 3),
    # 8xx environment
    ("MDH801", "error", "no C compiler", "No C compiler was found. Install gcc or clang, or name one after `--`.", 4),
    ("MDH802", "error", "compiler cannot build the original", "The unmodified file does not compile with the given command, so nothing can be compared.", 4),
    ("MDH803", "error", "file cannot be written", "The file or its directory may not be written; it was left as it was.", 2),
    ("MDH804", "error", "nest cannot be run by itself", "The verification harness could not build inputs for this nest, so nothing can be verified and nothing is spliced."),
    ("MDH805", "error", "no compiler for the target", "Files for CUDA are compiled by nvcc, or by what the environment variable CUDACXX names; files for OpenCL need its headers and its loader.", 4),
    ("MDH806", "error", "no device for the target", "The emitted code can be printed (`emit`), but neither run nor compared here, so nothing is tuned, verified or spliced. For OpenCL, MDH_OPENCL_DEVICE is the number of the device, 0 if it is not set.", 4),
    ("MDH820", "error", "language server is not installed", "`mdh-lift lsp` needs the extra `lsp`: `pip install 'mdh-lift[lsp]'`. All other verbs work without it.", 4),
    ("MDH821", "warning", "document was not analysed", "The language server analyses documents in a process of its own, with limits on time and memory. The document is larger than the limit, or the analysis exceeded another one or died, so nothing is known of it; the next edit starts anew. `mdh-lift check` has no such limits.", 0),
    ("MDH822", "error", "not done in the editor", "The language server neither compiles nor runs anything, so it splices only what the lock file says was tuned, verified and found faster on this machine for the nest as it is. `mdh-lift -w` on the file does all of that."),
    ("MDH823", "error", "limits of the machine could not be measured", "`doctor --bench` compiles and runs a small program of its own and keeps the figures beside the tuning database. One of these failed; nothing else depends on it.", 4),
    ("MDH824", "warning", "project's compiler is not started", "A compile database or a configuration file comes with the sources, so it may not choose which program runs: only a C compiler by its usual name (gcc, clang, with a target before and a version behind, and the like), in an absolute directory of PATH or by an absolute path, outside of the project. For reading, the compiler of this machine is used instead. A compiler that you name after `--` is your own word.", 0),
    ("MDH825", "warning", "edit was interrupted", "A run was killed while it wrote a source and the files beside it. The next run that writes finishes the edit; where a file was changed since, all files stay as they are."),
    ("MDH826", "info", "interrupted edit was finished", "A run was killed while it wrote a source and the files beside it; what it had begun was carried out before anything else.", 0),
    ("MDH827", "error", "another run edits the file", "Another run is writing this source and the files beside it; nothing was changed. Run the command again.", 2),
    ("MDH828", "error", "operating system refuses", "A file, a directory or the tuning database could not be used: the disk is full, permission is missing, a device fails, or a limit of the system is reached. Sources are as they were; what the database had before is still there.", 2),
    ("MDH829", "error", "project's compiler is not started", "Candidates are compiled with the project's compiler and flags, but the compile database or the configuration file names a program that it may not choose: `mdh-lift explain MDH824` says which it may. Name the compiler after `--`.", 2),
    # 9xx internal
    ("MDH901", "error", "internal error", "mdh-lift has a bug. The nest was left alone.", 101),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Related:
    """Another place that matters, with a short label."""

    span: Span
    label: str


@dataclass(frozen=True, slots=True)
class Fix:
    """An edit that answers a diagnostic: these bytes of the diagnostic's file become that text.

    It is safe to make without asking what was meant: after it the diagnostic is gone, and the program
    computes what it did before (a directive says less, or what the loops do).
    """

    title: str  # what it does, in the imperative: "write `pw(+)`"
    span: Span  # not empty
    text: str


def replacement(title: str, span: Span, text: str) -> Fix | None:
    """The fix, or None where the bytes to replace are not known (a macro wrote them)."""
    return Fix(title, span, text) if span and span.end > span.start else None


@dataclass(frozen=True, slots=True)
class Diagnostic:
    code: str
    message: str
    file: str = ""
    span: Span = NO_SPAN
    label: str = ""
    related: tuple[Related, ...] = ()
    notes: tuple[str, ...] = ()
    help: str = ""
    severity: str = ""  # empty: the table's
    line: int = 0  # where only a line is known (preprocessor errors); 0 = use the span
    fix: Fix | None = None

    def __post_init__(self) -> None:
        assert self.code in CODES, self.code
        if not self.severity:
            object.__setattr__(self, "severity", CODES[self.code].severity)

    @property
    def exit_status(self) -> int:
        """Of the table; where the severity is not, 1 for an error and 0 for what is less."""
        row = CODES[self.code]
        if row.exit_status >= 2 or self.severity == row.severity:
            return row.exit_status
        return int(self.severity == "error")

    def position(self, source: SourceFile | None) -> tuple[int, int]:
        """Line and column from 1, or (line, 1), or (1, 1)."""
        if source is not None and self.span:
            return source.line_col(self.span.start)
        return (self.line or 1, 1)


class Refusal(Exception):  # noqa: N818 - a refusal is an answer, not an error of ours
    """Raised inside a stage to say why not; the stage's entry point turns it into a result."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(f"{diagnostic.code}: {diagnostic.message}")
        self.diagnostic = diagnostic


def refuse(code: str, message: str, span: Span = NO_SPAN, **rest: object) -> Refusal:
    """A ``Refusal`` to raise; ``rest`` are further fields of ``Diagnostic``."""
    return Refusal(Diagnostic(code, message, span=span, **rest))  # type: ignore[arg-type]


def early_exit(word: str, span: Span, first: str, found: str) -> Refusal:
    """MDH205: a jump out of the iterations, or a choice between labels, with what to write instead.

    ``first``, ``found``: how the language keeps the first position of all, and whether there is any.
    """
    every = "go through all iterations, which reads all elements"
    keeps = f"with `at` = n before, `{first}` keeps the first position; `{found}` whether there is one"
    instead = {
        "break": f"{every}: {keeps}",
        "return": f"{every}, and return behind the nest: {keeps}",
        "continue": "put the rest of the body under the opposite condition",
        "goto": "put what it jumps over under a condition",
    }
    labels = "choose by `if`, `else if` and `else`"
    return refuse("MDH205", f"`{word}` inside a nest", span, help=instead.get(word, labels))
