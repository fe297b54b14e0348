"""A loop closed over its axis: which places are concatenated, reduced, scanned, or left alone.

before   one iteration of k:   acc = acc + A[i][k]*v[k]
after    the loop over k:      acc = Result(0)   over  (k: pw),  with +,  from acc,  of A[i][k]*v[k]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from lifter.legality import same_function, why_not_well_defined
from lifter.normalise import AxisLoop, declared
from lifter.places import Dims, Entry, Env, Place, Reduction, related, shown
from lifter.reductions import (
    ArgUpdate,
    LinearUpdate,
    SetOnce,
    Update,
    WhyNot,
    infer,
    infer_arg,
    number,
    strip,
    truth,
)
from mdh_core.combine import CombineOp, neutral, scalar_operator
from mdh_core.diagnostics import Refusal, refuse
from mdh_core.expr import (
    INT32,
    INT64,
    Affine,
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    Result,
    ScalarType,
    Select,
    Unary,
    affine_expr,
    affine_index,
    map_children,
    rewrite,
    walk,
)

if TYPE_CHECKING:
    from lifter.symbolic import Machine


class Closing:
    """Closes one loop; asks the machine what values depend on and adds the reductions it finds."""

    def __init__(self, machine: Machine, loop: AxisLoop) -> None:
        self.m, self.loop, self.axis = machine, loop, loop.axis.name

    def close(self, env: Env) -> Env:
        axis = self.axis
        local = declared(self.loop.body)
        env = {p: e for p, e in env.items() if p.name not in local}
        carried = [p for p in env if not p.uses(axis)]
        depends = {p: {q for q in self.m.reads(env[p].value) if q in carried} for p in carried}
        out: Env = {}
        running: list[tuple[Expr, Expr]] = []  # value after one iteration -> scan
        for group in connected(carried, depends):
            if len(group) == 1 and not depends[group[0]]:
                out[group[0]] = self.overwritten(group[0], env[group[0]])
            elif len(group) == 1:
                out[group[0]] = self.reduced(group[0], env[group[0]])
            else:
                out.update(self.reduced_together(group, env))
        for p in carried:
            value = env[p].value
            alone = depends[p] == {p} and not any(p in depends[q] for q in carried if q != p)
            if alone and isinstance(out[p].value, Result) and out[p].total is None:
                running.append((value, self.as_scan(out[p].value)))
        scanned: set[Place] = set()
        for p, entry in env.items():
            if p not in carried:
                out[p] = self.concatenated(p, entry, carried, running, scanned, env)
        for p in scanned:
            scan = next(s for v, s in running if v == env[p].value)
            out[p] = replace(
                out[p], value=scan, total=out[p].value, last=True, dims=((axis, "ps"), *out[p].dims)
            )
        return out

    def as_scan(self, e: Expr) -> Expr:
        """A reduction over the axis, as a scan of it."""
        assert isinstance(e, Result)
        axis = self.axis
        red, component = self.m.results[e.component]
        old = self.m.reductions[red]
        assert old.dims[0][0] == axis
        key = (red, axis, "scan")
        if key not in self.m.extended:
            self.m.extended[key] = self.m.add(replace(old, dims=((axis, "ps"), *old.dims[1:])))
        return self.m.result(self.m.extended[key], component)

    def overwritten(self, p: Place, entry: Entry) -> Entry:
        axis = self.axis
        if p.index is not None:
            raise refuse(
                "MDH208",
                f"`{p.name}` is written in every iteration of `{self.loop.axis.source_name}`",
                entry.span,
                label=f"this cell does not depend on `{self.loop.axis.source_name}`",
                related=related(self.loop.axis.loop.span, "the loop"),
                help="combine the values, for example with `+=`, or write each cell once",
            )
        value = self.m.extend(entry.value, axis, "cc")
        return Entry(value, ((axis, "cc"), *entry.dims), last=True, span=entry.span)

    def reduced(self, p: Place, entry: Entry) -> Entry:
        return replace(entry, value=self.reduce(p, self.m.symbol(p), entry, "pw"))

    def reduce(self, p: Place, a: Expr, entry: Entry, kind: str) -> Expr:
        """The value of ``entry`` after the loop, where ``a`` is the value before an iteration."""
        axis, value = self.axis, entry.value
        if entry.last:
            why = WhyNot("an inner loop leaves its last value in it")
            if entry.total is not None:
                why = WhyNot("a scan goes on from row to row", f"start `{p.name}` anew in each row")
            raise self.no_reduction(p, entry, why)
        inner = [n for n in walk(value) if isinstance(n, Result)]
        for n in inner:
            red, component = self.m.reduction_of(n)
            mine = self.m.reads(a)
            if any(self.m.reads(x) & mine for x in red.elements):
                raise self.no_reduction(
                    p, entry, WhyNot("an inner loop reads its value of the previous iteration")
                )
            initial = red.initials[component]
            if initial is not None and self.m.reads(initial) & mine:
                if value == n and initial == a and red.function.arity == 1:
                    return self.m.extend(value, axis, kind)
                raise self.no_reduction(
                    p,
                    entry,
                    WhyNot("it is combined in an inner loop and changed again outside of it"),
                )
        if kind == "pw" and self.is_set_once(value, a):
            return self.m.extend(value, axis, kind)
        update = infer(value, a, self.m.rules)
        if isinstance(update, WhyNot):
            raise self.no_reduction(p, entry, update)
        dims = ((axis, kind), *entry.dims)
        if isinstance(update, SetOnce):
            if kind == "ps":
                raise self.no_reduction(p, entry, WhyNot("it is set under a condition"))
            if any(isinstance(n, Result) for n in walk(update.cond)):
                why = WhyNot("whether it is set depends on the result of an inner loop")
                raise self.no_reduction(p, entry, why)
            return self.set_once(update, a, dims, entry)
        if isinstance(update, LinearUpdate):
            return self.linear(p, a, entry, update, dims)
        deeper = [n for n in walk(update.element) if isinstance(n, Result)]
        if deeper:
            return self.flattened(p, a, entry, update, deeper[0], kind)
        new = Reduction(update.function, (update.element,), (a,), dims, entry.span)
        return self.m.result(self.m.add(new), 0)

    def linear(self, p: Place, a: Expr, entry: Entry, update: LinearUpdate, dims: Dims) -> Expr:
        """A linear recurrence: the composition of the iterations' maps, applied to the value before the loop.

        Its loop is the innermost one.  Around others, which run in parallel, a loop in order is better: what
        they compute lies side by side.  So it is beside others where the recurrence runs along columns, see
        ``concatenated``.
        """
        if any(isinstance(n, Result) for e in (update.factor, update.term) for n in walk(e)):
            raise self.no_reduction(p, entry, WhyNot("a linear recurrence on the results of an inner loop"))
        if entry.dims:
            why = WhyNot(
                "a linear recurrence around a loop whose iterations are independent",
                "this loop runs in order, the inner one in parallel",
            )
            raise self.no_reduction(p, entry, why)
        t = update.term.type
        assert isinstance(t, ScalarType)
        elements, initials = (update.factor, update.term), (number(0, t), a)
        return self.m.result(self.m.add(Reduction(update.function, elements, initials, dims, entry.span)), 1)

    def flattened(
        self,
        p: Place,
        a: Expr,
        entry: Entry,
        update: Update,
        inner: Result,
        kind: str,
    ) -> Expr:
        """``s = s ⊕ Result`` where the result is itself combined with ⊕ from a neutral value."""
        red, component = self.m.reduction_of(inner)
        alike = (
            not self.m.rules.exact
            and red.function.name == update.function.name
            and red.function.types == update.function.types
            and red.function.name in ("min", "max")  # spelled differently: for NaN and -0.0 only
        )
        if not alike and not same_function(red.function, update.function):
            ops = (CombineOp(kind, update.function), CombineOp("pw", red.function))
            reason = why_not_well_defined(ops)
            raise refuse(
                "MDH209",
                reason or "a reduction of reductions",
                entry.span,
                label=f"`{ops[0]}` over `{self.loop.axis.source_name}` of a value that `{ops[1]}` yields",
                related=related(red.span, "the inner reduction"),
                help="store the inner results in an array and combine them in a second nest",
            )
        nothing = (neutral(red.function), *(red.function.identity or ()))
        initial = red.initials[component]
        if (
            strip(update.element) != inner
            or initial is None
            or not any(c is not None and _same_number(initial, c) for c in nothing)
        ):
            raise refuse(
                "MDH211",
                f"`{p.name}` combines values that an inner reduction yields, changed on the way",
                entry.span,
                related=related(red.span, "the inner reduction"),
                help="store the inner results in an array and combine them in a second nest",
            )
        if self.m.rules.exact and not red.function.exact:
            raise self.no_reduction(
                p,
                entry,
                WhyNot(
                    "sums of sums would be regrouped, which `fp(exact)` forbids",
                    "use `fp(deterministic)`",
                ),
            )
        new = replace(red, initials=(a,), dims=((self.axis, kind), *red.dims))
        return self.m.result(self.m.add(new), 0)

    def set_once(self, update: SetOnce, a: Expr, dims: Dims, entry: Entry) -> Expr:
        """``if (cond) a = constant``: did it hold anywhere (``||``), or never (``&&``)?"""
        zero_wanted = not update.constant.value
        name = "&&" if zero_wanted else "||"
        function = scalar_operator(name, INT32)
        assert function is not None
        element = Unary("!", truth(update.cond), INT32) if zero_wanted else truth(update.cond)
        new = Reduction(function, (element,), (Const(int(zero_wanted), INT32),), dims, entry.span)
        happened = Binary("!=", self.m.result(self.m.add(new), 0), Const(0, INT32), INT32)
        if zero_wanted:
            return Select(happened, a, update.constant, a.type)
        return Select(happened, update.constant, a, a.type)

    def is_set_once(self, value: Expr, a: Expr) -> bool:
        """Is the value what ``set_once`` made of an inner loop?"""
        match value:
            case Select(cond=Binary(op="!=", a=Result() as r), then=then, other=other):
                red, _ = self.m.reduction_of(r)
                constant = then if other == a else other
                from_constant = isinstance(red.initials[0], Const) and isinstance(constant, Const)
                return from_constant and a in (then, other) and red.function.name in ("||", "&&")
        return False

    def reduced_together(self, group: list[Place], env: Env) -> Env:
        """Several places that depend on one another: an arg-min or arg-max."""
        axis = self.axis
        entries = [env[p] for p in group]
        symbols = [self.m.symbol(p) for p in group]
        dims = entries[0].dims
        if any(e.dims != dims or e.last for e in entries):
            raise self.no_reduction(group[0], entries[0], WhyNot("its partners have other dimensions"))
        values = [e.value for e in entries]
        inner = [v for v in values if isinstance(v, Result)]
        update: ArgUpdate | WhyNot
        pairs: tuple[tuple[Expr, Expr], ...]
        if len(inner) == len(values):
            reds = {self.m.results[r.component][0] for r in inner}
            red, _ = self.m.reduction_of(inner[0])
            if len(reds) > 1 or [red.initials[self.m.results[r.component][1]] for r in inner] != symbols:
                raise self.no_reduction(group[0], entries[0], WhyNot("it changes outside the inner loop"))
            pairs, dims = red.arg_values, red.dims
        else:
            if any(isinstance(n, Result) for v in values for n in walk(v)):
                raise self.no_reduction(
                    group[0], entries[0], WhyNot("it depends on the results of an inner loop")
                )
            pairs = tuple(zip(symbols, values, strict=True))
        reduced = (axis, *(d for d, kind in dims if kind == "pw"))
        update = infer_arg(dict(pairs), reduced, self.m.rules)
        if isinstance(update, WhyNot):
            worst = next((e for e in entries if not isinstance(e.value, Result)), entries[0])
            raise self.no_reduction(group[entries.index(worst)], worst, update)
        positions: tuple[Expr, ...] = (Const(-1, INT64),) * update.positions
        new = Reduction(
            update.function,
            update.elements,
            (*update.order, *positions),
            ((axis, "pw"), *dims),
            entries[0].span,
            pairs,
        )
        number_ = self.m.add(new)
        return {
            p: replace(e, value=self.m.result(number_, update.order.index(a)))
            for p, e, a in zip(group, entries, symbols, strict=True)
        }

    def concatenated(
        self,
        p: Place,
        entry: Entry,
        carried: list[Place],
        running: list[tuple[Expr, Expr]],
        scanned: set[Place],
        env: Env,
    ) -> Entry:
        """A cell per index of the axis; its value may follow a running reduction."""
        axis = self.axis
        value, kind = entry.value, "cc"
        for after, scan in running:
            hit = _replaced(value, after, scan)
            if hit != value:
                kind, value = "ps", hit
                scanned.update(q for q in carried if env[q].value == after)
        previous = self.previous(p, value, axis)
        if kind == "cc" and previous is not None:
            before = replace(entry, value=value)
            value, kind = self.reduce(p, previous, before, "ps"), "ps"
            value = self.from_start(value, axis)
        inner = [self.m.reduction_of(n)[0] for n in walk(value) if isinstance(n, Result)]
        if kind == "ps" and self.m.loops and not all(r.function.commutative for r in inner):
            assert p.index is not None
            if axis not in p.index[-1].names:
                why = WhyNot(
                    "a linear recurrence along a column", "columns side by side are computed row by row"
                )
                raise self.no_reduction(p, entry, why)
        if kind == "ps" and any(r.dims[0] != (axis, "ps") for r in inner):
            raise refuse(
                "MDH211",
                f"`{p.name}` combines a scan with another reduction",
                entry.span,
                help="store the two results in arrays of their own",
            )
        late = sorted({q.name for q in self.reads_now(value, kind == "ps") if q in carried})
        if late:
            raise self.late_read(p, entry, late[0], carried, env)
        if kind == "cc":
            value = self.m.extend(value, axis, "cc")
        return replace(entry, value=value, dims=((axis, kind), *entry.dims))

    def reads_now(self, value: Expr, scan: bool) -> set[Place]:
        """Reads of a value; the initial value of a scan belongs to the time before the loop."""
        if not scan:
            return self.m.reads(value)
        out = self.m.reads(rewrite(value, lambda n: Const(0, INT32) if isinstance(n, Result) else None))
        for n in walk(value):
            if isinstance(n, Result):
                for e in self.m.reduction_of(n)[0].elements:
                    out |= self.m.reads(e)
        return out

    def previous(self, p: Place, value: Expr, axis: str) -> Load | None:
        """The read of the cell that the previous iteration of ``axis`` wrote, if there is one."""
        assert p.index is not None
        step = {axis: Affine.of(axis) - 1}
        before = tuple(a.substitute(step) for a in p.index)
        pool = [value]
        for n in walk(value):
            if isinstance(n, Result):
                pool += [x for x in self.m.reduction_of(n)[0].initials if x is not None]
        for e in pool:
            for n in walk(e):
                if not isinstance(n, Load) or n.buffer != p.name or self.m.is_gather(n):
                    continue
                if affine_index(n.index) == before:
                    return n
        return None

    def from_start(self, value: Expr, axis: str) -> Expr:
        """The initial value of an in-place scan is what the first iteration reads."""
        first = {axis: Affine.number(0)}

        def shift(n: Expr) -> Expr | None:
            if isinstance(n, Load) and self.m.is_gather(n):
                raise refuse("MDH214", f"index of `{n.buffer}` depends on data", n.span)
            if isinstance(n, Load):
                moved = (a.substitute(first) for a in affine_index(n.index))
                return replace(n, index=tuple(map(affine_expr, moved)))
            return None

        assert isinstance(value, Result)
        red, component = self.m.results[value.component]
        old = self.m.reductions[red]
        new = replace(old, initials=tuple(None if x is None else rewrite(x, shift) for x in old.initials))
        return self.m.result(self.m.add(new), component)

    # ----------------------------------------------------------------- why not

    def no_reduction(self, p: Place, entry: Entry, why: WhyNot) -> Refusal:
        name = shown(p, self.m.normal.axes)
        return refuse(
            "MDH207",
            f"`{name}` is carried from one iteration of `{self.loop.axis.source_name}` to the next, "
            "but not by a known combine operator",
            entry.span,
            label=why.reason,
            related=related(self.loop.axis.loop.span, "carried by this loop"),
            help=why.help
            or "write the update as `x = x ⊕ e` with an associative ⊕, or name its function in `combine_ops`",
        )

    def late_read(self, p: Place, entry: Entry, name: str, carried: list[Place], env: Env) -> Refusal:
        source = next(q for q in carried if q.name == name)
        return refuse(
            "MDH207",
            f"`{p.name}` needs the value that `{name}` had in the previous iteration of "
            f"`{self.loop.axis.source_name}`",
            entry.span,
            label=f"`{name}` is used before its update, or across rows",
            related=related(env[source].span, f"`{name}` is updated here"),
            help=f"use `{name}` after its update (an inclusive scan), or start it anew in each row",
        )


# --------------------------------------------------------------------------- helpers


def connected(places: list[Place], depends: Mapping[Place, set[Place]]) -> list[list[Place]]:
    """Places that depend on one another, directly or not; both orders kept as given."""
    group = {p: {p} for p in places}
    for p in places:
        for q in depends[p]:
            union = group[p] | group[q]
            for r in union:
                group[r] = union
    seen: set[Place] = set()
    out = []
    for p in places:
        if p not in seen:
            out.append([q for q in places if q in group[p]])
            seen |= group[p]
    return out


def _replaced(e: Expr, part: Expr, new: Expr) -> Expr:
    if e == part:
        return new
    return map_children(e, lambda child: _replaced(child, part, new))


def _same_number(e: Expr, c: Const) -> bool:
    while isinstance(e, Cast):
        e = e.a
    return isinstance(e, Const) and e.value == c.value
